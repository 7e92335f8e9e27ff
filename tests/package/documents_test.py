"""The C++ in documents compiles, with each compiler that is here, without a warning.

    documents_test.py INCLUDES CXX [unittest arguments]

INCLUDES are the folders of the public headers, with colons between them, CXX the compiler of
this build; g++ is tried, too. All ```cpp blocks of README.md and docs/ are put into one source,
each in a namespace of its own. What is around a block is in CONTEXTS.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```cpp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDES, CXX = [], ""

# Every header that a block without #include may mean.
HEADERS = ["expert_parallel", "routed_experts", "graph", "grouped_gemm", "model_folder", "moe_layer",
           "node", "world"]

# A page's blocks, in order: what stands before and behind each. Declarations are enough, since
# nothing is linked.
IN_RUN = "absl::Status F(octet::ExpertParallel& ep, octet::Rank& rank{}) {{"
CONTEXTS = {
    "README.md": [("", "")],
    "docs/several_nodes.md": [
        ("", ""),
        ("extern void *x, *y, *out; extern int* ids; extern float* weights; extern int tokens;", ""),
        ("extern void *x, *y; extern int tokens; extern octet::MoeLayerWeights weights;", "")],
    "docs/using.md": [
        ("void EnqueueSomethingElse(octet::GpuStream stream);" +
         IN_RUN.format(", const octet::DispatchArgs& args"), "return received.status(); }"),
        ("absl::Status Step(octet::Rank& rank);", ""),
        ("extern void *x, *y; extern int tokens;", ""),
        ("absl::Status Step(octet::Rank& rank); absl::Status F(octet::Rank& rank) {",
         "return launched; }"),
        ("void MyExpertsBackward(octet::GpuStream, const octet::Received&, const float*);"
         "extern void *dy, *dx, *dx_rows; extern int n; extern float* forward_weights;"
         "extern octet::DispatchHandle forward_handle;" + IN_RUN.format(""), "}"),
        ("extern int local_experts, max_rows, intermediate, hidden;"
         "extern void *gate_up, *mid, *down_weights, *out;"
         "absl::Status F(const absl::StatusOr<octet::Received>& received, octet::GpuStream stream) {"
         "absl::Status status;", "return status; }"),
        ("extern octet::EpConfig config; extern int intermediate, num_tokens; extern int* topk_idx;"
         "extern void *x, *y, *gate_up, *mid, *down_weights; extern float* topk_weights;"
         "absl::Status F(absl::StatusOr<std::unique_ptr<octet::Node>>& node, octet::Rank& rank) {",
         "}"),
        ("extern void *x[], *y[]; extern int tokens;"
         "absl::Status F(absl::StatusOr<std::unique_ptr<octet::Node>>& node) {", "}")],
}


def blocks_of(text):
    """(line of the fence, lines of #include, the rest) of each block."""
    found = []
    for match in BLOCK.finditer(text):
        lines = match[1].splitlines()
        found.append((text.count("\n", 0, match.start()) + 1,
                      [line for line in lines if line.startswith("#include")],
                      ["" if line.startswith("#include") else line for line in lines]))
    return found


def source_of(pages):
    """One source of all blocks; compilers name the page and its line."""
    includes = {f"#include <octet/{name}.h>" for name in HEADERS} | {"#include <memory>"}
    text = []
    for page, blocks in pages.items():
        for (line, of_block, code), (before, behind) in zip(blocks, CONTEXTS[page]):
            includes.update(of_block)
            text += [f"namespace block{len(text)} {{", before, f'#line {line + 1} "{page}"', *code,
                     behind, "}"]
    return "\n".join([*sorted(includes), *text]) + "\n"


class DocumentsTest(unittest.TestCase):
    def pages(self):
        paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
        pages = {str(path.relative_to(ROOT)): blocks_of(path.read_text(encoding="utf-8"))
                 for path in paths}
        return {page: blocks for page, blocks in pages.items() if blocks}

    def compiled(self, compiler, source):
        """What a compiler says."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "documents.cc"
            path.write_text(source, encoding="utf-8")
            return subprocess.run([compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror",
                                   *(f"-I{include}" for include in INCLUDES), "-fsyntax-only",
                                   path], capture_output=True, text=True, check=False).stderr

    def test_every_block_has_a_context(self):
        self.assertEqual({page: len(blocks) for page, blocks in self.pages().items()},
                         {page: len(contexts) for page, contexts in CONTEXTS.items()})

    def test_blocks_compile(self):
        source = source_of(self.pages())
        for compiler in sorted({CXX, "g++"}):
            with self.subTest(compiler=compiler):
                if not shutil.which(compiler):
                    self.skipTest(f"there is no {compiler}")
                self.assertEqual(self.compiled(compiler, source), "")

    def test_a_mistake_is_found(self):
        """Fields out of order are an error of g++ and a warning of clang, with page and line."""
        pages = {"README.md": blocks_of("```cpp\n#include <octet/expert_parallel.h>\n"
                                        "octet::DispatchArgs args = {.num_tokens = 1, .x = {}};\n"
                                        "```\n")}
        for compiler in sorted({CXX, "g++"}):
            if shutil.which(compiler):
                self.assertIn("README.md:3", self.compiled(compiler, source_of(pages)))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: documents_test.py INCLUDES CXX [unittest arguments]")
    INCLUDES = [include for include in sys.argv.pop(1).split(":") if include]
    CXX = sys.argv.pop(1)
    unittest.main()
