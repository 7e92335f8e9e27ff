"""The rules of the house: what holds for the source tree as it lies there, without compiling any.

    house_test.py [unittest arguments]

Each rule is a function from a tree (path -> text) to violations, one line each. Every rule is also
tried on the tree with something planted that it has to find.
"""

import posixpath
import sys
import unittest

sys.dont_write_bytecode = True

import includes  # noqa: E402
import lacking  # noqa: E402
import markdown  # noqa: E402
import style  # noqa: E402
from tree import ROOT, read_tree  # noqa: E402

TREE = read_tree()
DELETED = None


def exists_in(tree):
    folders = {""}
    for path in tree:
        while path:
            folders.add(path)
            path = posixpath.dirname(path)

    def exists(path):
        # Data is not in `tree`; what a test has deleted or planted is told by it.
        return path in folders or (path not in TREE and (ROOT / path).exists())

    return exists


FILES = {markdown.links, markdown.named_files}


def violations(rule, tree):
    return rule(tree, exists_in(tree)) if rule in FILES else rule(tree)


def include(path, name):
    """The tree's file `path`, or an empty new one, with one include more."""
    return {path: f'#include "{name}"\n' + (TREE.get(path) or "")}


def angle(path, name):
    return {path: f"#include <{name}>\n" + (TREE.get(path) or "")}


def append(path, text):
    return {path: TREE[path] + text}


def replace(path, old, new):
    assert old in TREE[path], (path, old)
    return {path: TREE[path].replace(old, new, 1)}


AMD, EMULATION, NVIDIA = (includes.PLATFORM + name for name in ("amd", "emulation", "nvidia"))
GPU = includes.GPU + "misuse.h"
PUBLIC = includes.PUBLIC[1] + "planted.h"

# A rule, and by what each planting has to be told.
RULES = [
    (includes.unknown_includes, [
        (include("runtime/node/node.cc", "node.h"),
         "runtime/node/node.cc:1: includes node.h, which is none"),
        (include("kernels/types/fp8.cc", "fp8.h/no"), "includes fp8.h/no"),
    ]),
    (includes.floors, [
        (include("runtime/node/node.cc", "octet/dtype.h"), "runtime may not know kernels"),
        (include("runtime/device/mask.h", "octet/node.h"),
         "runtime/device may not know runtime"),
        (include("kernels/types/fp8.cc", "tools/support/npy.h"), "kernels may not know tools"),
        (include("kernels/types/fp8.cc", "tests/support/ep_harness.h"),
         "kernels may not know tests"),
        (include("kernels/types/fp8.cc", "octet/octet.h"), "kernels may not know kernels/bindings"),
        (include("kernels/bindings/c/ep.cc", "tools/support/npy.h"),
         "kernels/bindings may not know tools"),
        (include("tools/support/npy.cc", "bench/session.h"), "tools may not know bench"),
        (include("bench/session.cc", "tests/support/ep_harness.h"), "bench may not know tests"),
        (include(GPU, "runtime/device/mask.h"), "may not know runtime/device"),
        ({**include("runtime/node/node.cc", "octet/planted.h"), PUBLIC: ""}, "may not know kernels"),
    ]),
    (includes.platforms, [
        (include(AMD + "/device_ops.h", NVIDIA + "/device_ops.h"), "of another platform"),
        (include(GPU, AMD + "/device_ops.h"), "of another platform"),
        (include("runtime/node/node.cc", GPU), "by its folder"),
        (include("runtime/node/node.cc", "emulation.h"), "which not every platform has"),
    ]),
    (includes.tools_rooms, [
        (include("tools/support/npy.cc", "tools/commands/command_line.h"),
         "tools/support may not know tools/commands"),
        (include("tools/workload/workload.cc", "tools/check/verify.h"),
         "tools/workload may not know tools/check"),
        (include("tools/check/verify.cc", "tools/measure/step/run.h"),
         "tools/check may not know tools/measure"),
        (include("tools/measure/step/run.cc", "tools/report/report.h"),
         "tools/measure may not know tools/report"),
        (include("tools/measure/step/soak.cc", "tools/commands/command_line.h"),
         "tools/measure may not know tools/commands"),
        (include("tools/new_room/file.cc", "tools/report/report.h"), "a place in TOOLS_ROOMS"),
    ]),
    (includes.kernels_rooms, [
        (include("kernels/low_latency/layout.h", "kernels/direct/layout.h"),
         "kernels/low_latency may not know kernels/direct"),
        (include("kernels/ep/device/counts.h", "kernels/ep/traffic.h"),
         "kernels/ep/device may not know kernels/ep"),
        (include("kernels/ep/traffic.cc", "kernels/direct/layout.h"),
         "kernels/ep may not know kernels/direct"),
        (include("kernels/model/safetensors.cc", "kernels/router/router.h"),
         "kernels/model may not know kernels/router"),
        (include("kernels/bindings/c/ep.cc", "kernels/ep/traffic.h"),
         "kernels/bindings may not know kernels/ep"),
        (include("kernels/new_room/file.cc", "kernels/ep/traffic.h"), "a place in KERNELS_ROOMS"),
        (replace("kernels/ep/strategy_registry.cc", '#include "kernels/direct/info.h"', ""),
         "kernels/ep/strategy_registry.cc no longer knows kernels/direct"),
    ]),
    (includes.kernels_libraries, [
        (include("kernels/tuning/tuning.cc", "kernels/gemm/kernels.h"),
         "octet_ep may not know octet_gemm"),
        (replace("kernels/CMakeLists.txt", "    gemm/kernels.cc\n", "    fused/resident.cc\n"),
         "fused/resident.cc is none of octet_gemm"),
    ]),
    (includes.cycles, [
        (include("kernels/include/octet/dtype.h", "octet/ep_config.h"),
         "octet/dtype.h -> kernels/include/octet/ep_config.h"),
    ]),
    (includes.no_absl_in_device_code, [
        (include("kernels/direct/combine.hip", "absl/status/status.h"),
         "kernels/direct/combine.hip -> absl/status/status.h"),
        (include("kernels/ep/device/counts.h", "octet/dtype.h"),
         "kernels/ep/device/counts.h -> kernels/include/octet/dtype.h -> absl/"),
        (include(NVIDIA + "/device_ops.h", "absl/types/span.h"),
         "runtime/platform/nvidia/device_ops.h -> absl/types/span.h"),
    ]),
    (includes.public_headers, [
        (include(PUBLIC, "runtime/gpu/launch.h"), "a public header may not"),
        (angle(PUBLIC, "hip/hip_runtime.h"), "a public header may not"),
        (angle(PUBLIC, "nlohmann/json.hpp"), "a public header may not"),
    ]),
    (includes.foreign_headers, [
        (angle("runtime/node/node.cc", "cuda_runtime.h"),
         "which belongs into runtime/platform/"),
        (angle("kernels/types/fp8.cc", "gtest/gtest.h"), "which belongs into tests/"),
        (angle("tools/measure/step/run.cc", "rccl/rccl.h"), "tests/support/"),
        (angle("tools/commands/run_flags.cc", "CLI/CLI.hpp"),
         "which belongs into tools/commands/command_line.cc"),
        (angle("kernels/layer/pack_weights.cc", "nlohmann/json.hpp"), "kernels/model/"),
        (angle("tools/support/npy.cc", "sys/mman.h"), "kernels/model/"),
    ]),
    (lacking.others_headers, [
        (replace("kernels/model/layer_tensors.cc", "#include <limits>\n", ""),
         "kernels/model/layer_tensors.cc: std::numeric_limits needs <limits>"),
        (replace("kernels/model/safetensors.cc", '#include "absl/strings/str_cat.h"\n', ""),
         "kernels/model/safetensors.cc: absl::StrCat needs <absl/strings/str_cat.h>"),
        (replace("tests/kernels/strategy_test.cc", "#include <gmock/gmock.h>\n", ""),
         "EXPECT_THAT needs <gmock/gmock.h>"),
        (append("runtime/node/node.cc", "nlohmann::json json;\n"), "needs <nlohmann/json.hpp>"),
        (append("runtime/node/node.cc", "const bool kUnknown = errno == ENOENT;\n"),
         "runtime/node/node.cc: errno needs"),
        (append("kernels/types/fp8.cc", "void Sleep() { ::usleep(1); }\n"), "usleep needs <unistd.h>"),
        (append("kernels/types/fp8.cc", "void Close(int file) { close(file); }\n"), "close needs"),
        (append("runtime/node/node.cc", "std::jthread thread;\n"), "give std::jthread a header"),
        (append("runtime/node/node.cc", "const int kWidth = LONG_BIT;\n"), "give LONG_BIT a header"),
    ]),
    (style.header_guards, [
        (replace("runtime/gpu/launch.h", "#ifndef OCTET_RUNTIME_GPU_LAUNCH_H_",
                 "#ifndef OCTET_LAUNCH_H_"),
         "runtime/gpu/launch.h: its guard"),
        (replace("runtime/gpu/launch.h", "#endif  // OCTET_RUNTIME_GPU_LAUNCH_H_", "#endif"),
         "runtime/gpu/launch.h"),
        ({"kernels/planted.h": "#pragma once\n"}, "kernels/planted.h: its guard"),
    ]),
    (style.no_conditionals, [
        (append("kernels/direct/combine.hip", "#if 1\n#endif\n"), "#if 1"),
        (append("kernels/direct/combine.hip", "#ifdef __HIP__\n#endif\n"), "#ifdef __HIP__"),
        (append("kernels/ep/device/counts.h", "#ifndef NDEBUG\n#endif\n"), "#ifndef NDEBUG"),
        (append("runtime/device/mask.h", "  # if defined(X)\n"), "# if defined(X)"),
    ]),
    (style.whitespace, [
        (append("runtime/node/node.cc", "\tint i;\n"), "a tab"),
        (append("cmake/OctetTargets.cmake", "set(x) \n"), "blanks at the end"),
        (append("tools/test.sh", "\n"), "one line break"),
    ]),
    (style.columns, [
        (append("kernels/direct/combine.hip", "// " + "é" * 98 + "\n"), "101 columns"),
    ]),
    (style.no_typedefs, [
        (append("kernels/direct/combine.hip", "typedef int Number;\n"), "typedef int Number"),
        (append("runtime/gpu/launch.h", "  typedef  int* Pointer;\n"), "runtime/gpu/launch.h"),
    ]),
    (style.test_size, [
        (append("tests/runtime/node_test.cc", "TEST(A, B) {\n" + "  f();\n" * 79 + "}\n"),
         "81 lines"),
    ]),
    (style.same_headers, [
        ({AMD + "/fp8_ops.h": DELETED}, "runtime/platform/amd has no fp8_ops.h"),
        ({GPU: DELETED}, "runtime/platform/nvidia has no misuse.h"),
        ({NVIDIA + "/planted.h": ""}, "runtime/platform/emulation has no planted.h"),
    ]),
    (style.same_names, [
        (replace(AMD + "/device_ops.h", " SyncWave(", " SyncTheWave("),
         "runtime/platform/amd/device_ops.h does not declare SyncWave/0"),
        (replace(EMULATION + "/misuse.h", "(int device, const void* pointer)", "(int device)"),
         "runtime/platform/emulation/misuse.h does not declare PlaceOutside/2"),
        (replace(EMULATION + "/launch_limits.h", "DefaultLaunchLimits(", "LaunchLimitsOf("),
         "runtime/platform/gpu/launch_limits.h does not declare LaunchLimitsOf/1"),
        (replace(GPU, "class BodyWatch {", "class Watch {"), "BodyWatch"),
    ]),
    (markdown.width, [
        (append("docs/formats.md", "x" * 121 + "\n"), "121 columns"),
        (append("docs/formats.md", f"{'x' * 110} [a link](docs/{'y' * 90}) more\n"), "columns"),
    ]),
    (markdown.readme_length, [
        (append("README.md", "line\n" * 151), "at most 150"),
    ]),
    (markdown.links, [
        (append("README.md", "[text](docs/no_such_page.md)\n"),
         "there is no docs/no_such_page.md"),
        (append("docs/formats.md", "![a picture](../bench/none.svg)\n"), "there is no bench"),
        (append("README.md", "[text](docs/formats.md#no-such-heading)\n"), "no heading"),
        (append("README.md", "[text](#no-such-heading)\n"), "no heading"),
    ]),
    (markdown.reachable, [
        ({"docs/planted.md": "# Nobody knows me\n"}, "docs/planted.md: nothing"),
    ]),
    (markdown.named_files, [
        (append("runtime/node/node.cc", "// See runtime/no_such_file.h.\n"),
         "no runtime/no_such_file.h"),
        (append("docs/formats.md", "`tests/tools/no_such_test.py`\n"),
         "tests/tools/no_such_test.py"),
        ({"docs/formats.md": DELETED}, "there is no docs/formats.md"),
    ]),
]


class HouseTest(unittest.TestCase):
    """Filled below: a test of the tree for each rule, and one of the rule."""


def test_of_tree(rule):
    def test(self):
        found = violations(rule, TREE)
        if found:
            self.fail("\n".join([" ".join(rule.__doc__.split()), *found]))

    return test


def test_of_rule(rule, plantings):
    def test(self):
        before = set(violations(rule, TREE))
        for planted, words in plantings:
            with self.subTest(planted=sorted(planted), words=words):
                tree = {path: text for path, text in {**TREE, **planted}.items()
                        if text is not DELETED}
                found = [line for line in violations(rule, tree) if line not in before]
                self.assertTrue(any(words in line for line in found), found)

    return test


for checked, planting in RULES:
    name = checked.__name__
    setattr(HouseTest, f"test_{name}", test_of_tree(checked))
    setattr(HouseTest, f"test_{name}_finds_what_is_planted", test_of_rule(checked, planting))


if __name__ == "__main__":
    unittest.main()
