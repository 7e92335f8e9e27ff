"""tools/lint.py: what has a stamp is not checked again, and whatever may change the answer is.

    lint_test.py [unittest arguments]

Exit code 77 where clang-tidy-22, clang-scan-deps-22 or clang++-22 is not installed.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAMS = ("clang-tidy-22", "clang-scan-deps-22", "clang++-22")
REAL = 'exec clang-tidy-22 "$@"'
LINT = pathlib.Path(__file__).resolve().parents[3] / "tools" / "lint.py"

CONFIGURATION = """Checks: '-*,modernize-use-nullptr,readability-identifier-naming'
WarningsAsErrors: '*'
HeaderFilterRegex: '.*/(tools|outer)/.*'
CheckOptions:
  readability-identifier-naming.FunctionCase: CamelCase
"""
FILES = {
    ".clang-tidy": CONFIGURATION,
    "tools/a.cc": '#include "b.h"\nint* Pointer() { return B(); }\n',
    "tools/b.h": "inline int* B() { return nullptr; }\n",
    "tools/sub/.clang-tidy": "InheritParentConfig: true\n",
    "tools/sub/c.cc": "char* C() { return nullptr; }\n",
    "tools/d.cc": "Precompiled* D() { return nullptr; }\n",
    "build/emulation/pch.h": '#include "precompiled.h"\n',
    "include/precompiled.h": "struct Precompiled {};\n",
}


class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="octet_lint_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tree = self.make_tree("one")
        self.write_tool("exit 0")

    def write_tool(self, command):
        """In place of clang-tidy, which is slow, where its answer is of no interest."""
        tool = self.folder / "tidy"
        tool.write_text(f"#!/bin/sh\n{command}\n")
        tool.chmod(0o755)

    def make_tree(self, name):
        """A checkout: the files, the program, and a build with precompiled headers."""
        tree = self.folder / name
        for path, text in FILES.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        shutil.copy(LINT, tree / "tools" / "lint.py")
        self.write_commands(tree)
        self.precompile(tree)
        return tree

    def write_commands(self, tree, *flags, sources=("a.cc", "sub/c.cc", "d.cc")):
        build = tree / "build" / "emulation"
        compiler = ["clang++-22", f"-I{tree}/early", f"-I{tree}/include", *flags]
        pch = str(build / "pch.h.pch")
        commands = [([*compiler, "-x", "c++-header", "-o", "pch.h.pch", "-c"], "pch.h")]
        for source in sources:
            used = ["-Xclang", "-include-pch", "-Xclang", pch] if source == "d.cc" else []
            commands.append(([*compiler, *used, "-o", source + ".o", "-c"],
                             f"{tree}/tools/{source}"))
        (build / "compile_commands.json").write_text(json.dumps(
            [{"directory": str(build), "file": file, "arguments": [*words, file]}
             for words, file in commands]))

    def precompile(self, tree):
        build = tree / "build" / "emulation"
        (header, *_) = json.loads((build / "compile_commands.json").read_text())
        subprocess.run(header["arguments"], cwd=build, check=True)

    def lint(self, *flags, tree=None):
        """(exit code, the files that were checked, what was said about them)."""
        tree = tree or self.tree
        done = subprocess.run(
            [sys.executable, str(tree / "tools" / "lint.py"), "--jobs=1",
             f"--build-dir={tree}/build/emulation", f"--stamps={self.folder}/stamps",
             f"--clang-tidy={self.folder}/tidy", *flags],
            capture_output=True, text=True, check=False)
        checked = {line.split()[-1] for line in done.stderr.splitlines() if line.startswith("[")}
        return done.returncode, checked, done.stdout + done.stderr

    def assert_checked(self, files, *flags, tree=None, code=0):
        returned, checked, said = self.lint(*flags, tree=tree)
        self.assertEqual(returned, code, said)
        self.assertEqual(checked, {f"tools/{file}" for file in files}, said)
        return said

    def write(self, path, text):
        (self.tree / path).parent.mkdir(exist_ok=True)
        (self.tree / path).write_text(text)

    def stamp_all(self):
        self.assert_checked(["a.cc", "sub/c.cc", "d.cc"])
        self.assertIn("3 had stamps", self.assert_checked([]))

    def test_source_and_header(self):
        self.stamp_all()
        self.write("tools/a.cc", FILES["tools/a.cc"] + "// More.\n")
        self.assert_checked(["a.cc"])
        self.write("tools/b.h", FILES["tools/b.h"] + "inline int* E() { return nullptr; }\n")
        self.assert_checked(["a.cc"])
        self.write("tools/a.cc", FILES["tools/a.cc"])
        self.write("tools/b.h", FILES["tools/b.h"])
        self.assert_checked([])

    def test_precompiled_header(self):
        self.write_tool(REAL)
        self.stamp_all()
        self.write("include/precompiled.h", "struct Precompiled { int i; };\n")
        # One that is older than what it is made of is refused by clang-tidy, and so gets no stamp.
        self.assert_checked(["d.cc"], code=1)
        self.assert_checked(["d.cc"], code=1)
        self.precompile(self.tree)
        self.assert_checked(["d.cc"])
        self.assert_checked([])

    def test_flags(self):
        self.stamp_all()
        self.write_commands(self.tree, "-DMORE")
        self.assert_checked(["a.cc", "sub/c.cc", "d.cc"])
        self.assert_checked([])
        self.write_commands(self.tree, "-mtune=native")
        self.precompile(self.tree)
        self.assert_checked(["a.cc", "sub/c.cc", "d.cc"])
        self.assert_checked(["a.cc", "sub/c.cc", "d.cc"])

    def test_configuration(self):
        self.stamp_all()
        self.write("tools/sub/.clang-tidy", "InheritParentConfig: true\n# More.\n")
        self.assert_checked(["sub/c.cc"])
        self.write(".clang-tidy", CONFIGURATION + "# More.\n")
        self.assert_checked(["a.cc", "sub/c.cc", "d.cc"])
        (self.folder / ".clang-tidy").write_text(CONFIGURATION)  # above the checkout
        self.assert_checked(["a.cc", "sub/c.cc", "d.cc"])
        self.write("include/.clang-tidy", "InheritParentConfig: true\n")  # of a header
        self.assert_checked(["d.cc"])

    def test_header_that_hides_another(self):
        self.write_tool(REAL)
        self.write("tools/a.cc", "#include <b.h>\nint* Pointer() { return B(); }\n")
        self.write("include/b.h", FILES["tools/b.h"])
        self.stamp_all()
        self.write("early/b.h", "inline int* B() { return 0; }\n")
        self.write(".clang-tidy", CONFIGURATION.replace("tools|", "early|"))
        self.assert_checked(["a.cc", "sub/c.cc", "d.cc"], code=1)
        shutil.rmtree(self.tree / "early")
        self.write(".clang-tidy", CONFIGURATION)
        self.assert_checked([])
        self.write("early/b.h", FILES["tools/b.h"])
        self.assert_checked(["a.cc"])

    def test_tool(self):
        self.stamp_all()
        self.write_tool("exit 0  # another version")
        self.stamp_all()
        source = str(self.tree / "tools/a.cc")
        self.assert_checked(["a.cc"], "--clang-tidy=clang-tidy-22", source)
        self.assert_checked([], "--clang-tidy=clang-tidy-22", source)

    def test_failures_and_warnings_have_no_stamps(self):
        self.write_tool(REAL)
        self.stamp_all()
        self.write("tools/b.h", "inline int* B() { return 0; }\n")
        for _ in range(2):
            said = self.assert_checked(["a.cc"], code=1)
            self.assertIn("modernize-use-nullptr", said)
            self.assertIn("1 files checked, 1 failed; 2 had stamps", said)
        self.write("tools/b.h", "inline int* B() { return 0; }  // NOLINT\n")
        self.assert_checked(["a.cc"])
        self.write("tools/a.cc", "int* Pointer() { return 0; }\n")
        self.write(".clang-tidy", CONFIGURATION.replace("WarningsAsErrors: '*'\n", ""))
        self.assertIn("modernize-use-nullptr", self.assert_checked(["a.cc", "sub/c.cc", "d.cc"]))
        self.assertIn("modernize-use-nullptr", self.assert_checked(["a.cc"]))
        self.write("tools/a.cc", "This is no C++.\n")
        for _ in range(2):
            self.assert_checked(["a.cc"], code=1)

    def test_sources_that_one_process_checks(self):
        """What one of them says is said of that one alone."""
        good = [f"good{number}/a.cc" for number in range(6)]
        for file in good:
            self.write(f"tools/{file}", '#include "../b.h"\n')
        self.write("tools/bad0/a.cc", "int* Bad() { return 0; }\n")
        self.write("tools/bad9/a.cc", '#include "bad9.h"\n')
        self.write("tools/bad9/bad9.h", "inline int* bad_name() { return nullptr; }\n")
        bad = ["bad0/a.cc", "bad9/a.cc"]
        self.write_commands(self.tree, sources=["a.cc", "sub/c.cc", *bad, *good])
        self.write_tool(f'echo "$@" >>{self.folder}/calls\n{REAL}')
        said = self.assert_checked(["a.cc", "sub/c.cc", *bad, *good], code=1)
        self.assertIn("modernize-use-nullptr", said)
        self.assertIn("bad_name", said)
        self.assertIn("10 files checked, 2 failed; 0 had stamps", said)
        calls = [sum(word.endswith(".cc") for word in line.split())
                 for line in (self.folder / "calls").read_text().splitlines()]
        self.assertEqual(calls.count(5), 2)
        self.assertGreater(calls.count(1), 0)
        self.assert_checked(bad, code=1)

    def write_folder(self, texts, **flags):
        """Sources in tools/many, and commands for them; the tool tells of its calls."""
        for file, text in texts.items():
            self.write(f"tools/many/{file}", text)
        self.write_commands(self.tree, sources=[f"many/{file}" for file in texts], **flags)
        self.write_tool(f'echo "$@" >>{self.folder}/calls\n{REAL}')
        return [f"many/{file}" for file in texts]

    def calls(self):
        return [[os.path.basename(word) for word in line.split() if word.endswith(".cc")]
                for line in (self.folder / "calls").read_text().splitlines()]

    def test_sources_of_a_folder_are_one(self):
        """Each of them has a stamp of its own."""
        files = self.write_folder({f"{name}.cc": f"int* {name}() {{ return nullptr; }}\n"
                                   for name in ("One", "Two", "Three")})
        self.assert_checked(files)
        self.assertEqual(self.calls(), [["octet_lint_unit.cc"]])
        self.assertFalse((self.tree / "tools/many/octet_lint_unit.cc").exists())
        self.write("tools/many/One.cc", "int* One() { return nullptr; }  // More.\n")
        self.assert_checked(["many/One.cc"])
        self.assertEqual(self.calls()[1:], [["One.cc"]])
        self.assert_checked([])

    def test_what_is_said_of_one_of_a_folder(self):
        """In a source and in its header: found among the others, and told of it alone."""
        files = self.write_folder({
            "good.cc": "int* Good() { return nullptr; }\n",
            "bad.cc": "int* Bad() { return 0; }\n",
            "named.cc": '#include "named.h"\n',
            "last.cc": "int* Last() { return nullptr; }\n"})
        self.write("tools/many/named.h", "inline int* bad_name() { return nullptr; }\n")
        said = self.assert_checked(files, code=1)
        self.assertIn("modernize-use-nullptr", said)
        self.assertIn("bad_name", said)
        self.assertIn("4 files checked, 2 failed", said)
        self.assertEqual(self.calls()[0], ["octet_lint_unit.cc"])
        self.assert_checked(["many/bad.cc", "many/named.cc"], code=1)

    def test_sources_that_cannot_be_one(self):
        """Those that name things alike are asked about by themselves: in one of OctetTargets.cmake's
        folders at once."""
        text = "namespace {\nint One() { return 1; }\n}  // namespace\nint %s() { return One(); }\n"
        files = self.write_folder({f"{name}.cc": text % name for name in ("First", "Second")})
        self.assert_checked(files)
        self.assertEqual(self.calls(), [["octet_lint_unit.cc"], ["First.cc"], ["Second.cc"]])
        self.write("cmake/OctetTargets.cmake", "set(octet_separate_folders bench tools/many)\n")
        self.write("tools/many/.clang-tidy", "InheritParentConfig: true\n")
        self.assert_checked(files)
        self.assertNotIn(["octet_lint_unit.cc"], self.calls()[3:])

    def test_include_that_neighbours_hide(self):
        """Whichever of them comes first."""
        for lacking, including in (("a.cc", "z.cc"), ("z.cc", "a.cc")):
            files = self.write_folder({
                lacking: "int* Lacking() { return B(); }\n",
                "m.cc": f"int* Neither() {{ return nullptr; }}  // {lacking}\n",
                including: '#include "../b.h"\nint* Including() { return B(); }\n'})
            said = self.assert_checked(files, code=1)
            self.assertIn(f"{lacking}:1:25: error: use of undeclared identifier 'B'", said)
            self.assertIn("3 files checked, 1 failed", said)
            self.assert_checked([f"many/{lacking}"], code=1)
            self.write(f"tools/many/{lacking}", '#include "../b.h"\nint* Lacking() { return B(); }\n')
            self.assert_checked([f"many/{lacking}"])

    def test_name_that_only_macros_use(self):
        """clang-tidy says nothing of it where it sees such a use, which a source's neighbour has."""
        guarded = "#ifndef M_H_\n#define M_H_\n%s\n#endif\n"
        for name, code in (("Good", 0), ("bad_name", 1)):
            self.write("tools/m.h", guarded % f"int {name}();\n#define USE(x) (x)")
            files = self.write_folder({
                "a.cc": f'#include "../m.h"\n// {name}\nint A() {{ return 1; }}\n',
                "b.cc": f'#include "../m.h"\nint B() {{ return USE({name}()); }}\n'})
            said = self.assert_checked(files, code=code)
            self.assertEqual("m.h:3:5: error: invalid case style" in said, code == 1, said)

    def test_what_is_wrong_in_headers_alone(self):
        """Sources of a folder may have it, and are read as one; a header with it is found."""
        self.write(".clang-tidy", CONFIGURATION.replace("modernize", "google-global-names-in-headers,"
                                                                     "modernize"))
        files = self.write_folder({
            "a.cc": '#include "named.h"\nusing n::F;\nint A() { return F(); }\n',
            "b.cc": '#include "named.h"\nint B() { return n::F(); }\n'})
        for using, code in (("", 0), ("using n::F;", 1)):
            self.write("tools/many/named.h", "#ifndef N_\n#define N_\nnamespace n { int F(); }\n"
                                             f"{using}\n#endif\n")
            (self.folder / "calls").unlink(missing_ok=True)
            said = self.assert_checked(files, code=code)
            self.assertEqual("named.h:4:1: error: using declarations" in said, code == 1, said)
            self.assertEqual(self.calls()[1:] == [["octet_lint_unit.cc"]], code == 0)

    def test_configuration_of_a_folder(self):
        """Of sources that are one, it is that of their folder."""
        files = self.write_folder({f"{name}.cc": f"int* {name}() {{ return nullptr; }}\n"
                                   for name in ("one", "two")})
        self.write("tools/many/.clang-tidy", "InheritParentConfig: true\nCheckOptions:\n"
                   "  readability-identifier-naming.FunctionCase: lower_case\n")
        self.assert_checked(files)
        self.assertEqual(self.calls(), [["octet_lint_unit.cc"]])
        self.write("tools/many/.clang-tidy", "InheritParentConfig: true\n")
        self.assert_checked(files, code=1)

    def test_another_checkout(self):
        self.stamp_all()
        self.assert_checked([], tree=self.make_tree("another"))
        # In this one the filter applies to a header that it does not apply to elsewhere.
        self.assert_checked(["d.cc"], tree=self.make_tree("outer"))

    def test_unknown_headers(self):
        for _ in range(2):
            said = self.assert_checked(["a.cc", "sub/c.cc", "d.cc"], "--clang-scan-deps=no_such")
            self.assertIn("no no_such", said)
        self.write_tool(REAL)
        (self.tree / "build/emulation/pch.h.pch").unlink()
        self.assert_checked(["a.cc", "sub/c.cc", "d.cc"], code=1)
        self.assert_checked(["d.cc"], code=1)

    def test_named_files(self):
        self.assert_checked(["a.cc"], *[str(self.tree / "tools/a.cc")] * 2)
        self.assert_checked([], str(self.tree / "tools/a.cc"))
        self.assertEqual(self.lint(str(self.tree / "tools/b.h"))[0], 2)

    def test_old_stamps_go(self):
        self.stamp_all()
        stamps = list((self.folder / "stamps").iterdir())
        for stamp in stamps:
            os.utime(stamp, (time.time() - 40 * 24 * 3600,) * 2)
        self.assert_checked([], str(self.tree / "tools/a.cc"))
        self.assertEqual(len(list((self.folder / "stamps").iterdir())), 1)


if __name__ == "__main__":
    if not all(shutil.which(program) for program in PROGRAMS):
        print(f"skipped: needs {', '.join(PROGRAMS)}")
        sys.exit(77)
    unittest.main()
