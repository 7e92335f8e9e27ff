"""The C interface as programs in C99 use it, and what its libraries export.

    c_interface_test.py LIBRARY [unittest arguments]

LIBRARY is liboctet.so; liboctet_mpi.so lies beside it, if there is one.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

LIBRARY = pathlib.Path()
SOURCE = pathlib.Path(__file__).resolve().parents[3]
C = SOURCE / "kernels" / "bindings" / "c"
HERE = pathlib.Path(__file__).resolve().parent
COMPILERS = [name for name in ("cc", "clang-22") if shutil.which(name)]


def run(*command):
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{command[0]}: exit code {result.returncode}\n{result.stdout}")
    return result.stdout


def libraries():
    return [path for path in (LIBRARY, LIBRARY.with_name("liboctet_mpi.so")) if path.exists()]


def declared():
    """The functions of <octet/octet.h>."""
    text = "".join(header.read_text() for header in (C / "include" / "octet").rglob("*.h"))
    return set(re.findall(r"^OCTET_API [^;(]*?(\w+)\(", text, re.MULTILINE))


class ProgramsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="octet_c_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def build(self, source, compiler):
        program = self.folder / f"{source.stem}_{compiler}"
        run(compiler, "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
            "-Wno-missing-field-initializers", f"-I{C / 'include'}", source, LIBRARY,
            f"-Wl,-rpath,{LIBRARY.parent}", "-o", program)
        return program

    def test_the_example_runs(self):
        for compiler in COMPILERS:
            said = run(self.build(C / "example" / "moe_step.c", compiler))
            self.assertRegex(said, r"^y is 2 x on 4 ranks \(Octet [\d.]+ for emulation\)\n$")

    def test_steps_are_timed(self):
        for compiler in COMPILERS:
            program = self.build(C / "example" / "step_times.c", compiler)
            said = run(program, "2", "5", "16", "4", "256", "3")
            self.assertRegex(said, r"^2 ranks, T 5, E 16, K 4, H 256 on emulation: "
                             r"[\d.]+ us by calls, [\d.]+ us from a graph\n$")

    def test_what_is_wrong_is_refused(self):
        self.assertEqual(run(self.build(HERE / "refusals.c", COMPILERS[0])), "all refused\n")


class SymbolsTest(unittest.TestCase):
    def test_exported_symbols_are_the_functions_of_the_header(self):
        self.assertGreater(len(declared()), 60)
        for library in libraries():
            with self.subTest(library=library.name):
                lines = run("nm", "-D", "--defined-only", library).splitlines()
                symbols = {line.split()[-1] for line in lines} - {"OCTET_0@@OCTET_0", "OCTET_0"}
                self.assertEqual(symbols, {f"{name}@@OCTET_0" for name in declared()})

    def test_only_one_library_needs_mpi(self):
        for library in libraries():
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", library))
            self.assertEqual(any("mpi" in name for name in needed), "mpi" in library.name, needed)

    def test_names_of_the_libraries(self):
        for library in libraries():
            soname = re.search(r"\(SONAME\).*\[(.*)\]", run("readelf", "-dW", library))[1]
            self.assertEqual(soname, f"{library.name}.0")


def main():
    global LIBRARY
    if len(sys.argv) < 2:
        sys.exit("usage: c_interface_test.py LIBRARY [unittest arguments]")
    LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve().parent / "liboctet.so"
    unittest.main()


if __name__ == "__main__":
    main()
