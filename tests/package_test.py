"""Octet as its users install it: the example that is installed with it, as a project of theirs.

    package_test.py BUILD_DIR CXX [unittest arguments]

BUILD_DIR is a finished build of Octet, CXX the compiler that made it.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path()
CXX = ""
SOURCE = pathlib.Path(__file__).resolve().parent.parent


def run(*command, cwd=None, env=None):
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        line = " ".join(map(str, command))
        raise AssertionError(f"{line}: exit code {result.returncode}\n{result.stdout}")
    return result.stdout


def project_version():
    text = (SOURCE / "CMakeLists.txt").read_text()
    return re.search(r"project\(octet VERSION ([0-9.]+)", text)[1]


class PackageTest(unittest.TestCase):
    def setUp(self):
        # Outside of the source tree, where none of its headers are found by accident.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="octet_package_"))
        self.addCleanup(shutil.rmtree, self.folder)

    def installed(self):
        prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        return prefix

    def unpacked_deb(self):
        run("cpack", "-G", "DEB", "-B", self.folder / "deb", cwd=BUILD)
        (deb,) = (self.folder / "deb").glob("*.deb")
        root = self.folder / "root"
        run("dpkg-deb", "-x", deb, root)
        return deb, root / "usr"

    def example(self, prefix):
        return prefix / "share" / "doc" / "octet" / "example"

    def configure(self, prefix, version):
        return run("cmake", "-S", self.example(prefix), "-B", self.folder / "build",
                   f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={CXX}",
                   f"-DWANTED_VERSION={version}")

    def build_and_run(self, prefix):
        version = project_version()
        self.assertIn(f"Octet {version} for emulation", self.configure(prefix, version))
        run("cmake", "--build", self.folder / "build")
        self.assertEqual(run(self.folder / "build" / "consumer"), "ok\n")

    def pkg_config(self, prefix, *arguments):
        path = prefix / "lib" / "pkgconfig"
        return run("pkg-config", *arguments, "octet", env={"PKG_CONFIG_PATH": str(path)}).split()

    def test_find_package(self):
        self.build_and_run(self.installed())

    def test_other_minor_version_is_refused(self):
        major, minor, _ = map(int, project_version().split("."))
        prefix = self.installed()
        for other in {max(minor - 1, 0), minor + 1} - {minor}:
            with self.assertRaisesRegex(AssertionError, "considered but not accepted"):
                self.configure(prefix, f"{major}.{other}")

    def test_pkg_config(self):
        prefix = self.installed()
        self.assertEqual(self.pkg_config(prefix, "--modversion"), [project_version()])
        flags = ["-std=c++20", *self.pkg_config(prefix, "--cflags")]
        kernel_flags = self.pkg_config(prefix, "--variable=kernel_flags")
        kernels, consumer = self.folder / "negate.o", self.folder / "consumer"
        example = self.example(prefix)
        run(CXX, *flags, *kernel_flags, "-c", example / "negate.hip", "-o", kernels)
        run(CXX, *flags, example / "consumer.cc", kernels, *self.pkg_config(prefix, "--libs"),
            "-o", consumer)
        self.assertEqual(run(consumer), "ok\n")

    def test_installed_headers_need_no_others(self):
        prefix = self.installed()
        include = prefix / "include" / "octet"
        headers = sorted(str(path.relative_to(include)) for path in include.rglob("*.h"))
        self.assertIn("kernels/expert_parallel.h", headers)
        self.assertIn("hip/hip_runtime.h", headers)
        everything = self.folder / "everything.cc"
        everything.write_text("".join(f'#include "{header}"\n' for header in headers))
        run(CXX, "-std=c++20", *self.pkg_config(prefix, "--cflags"), "-fsyntax-only", everything)

    @unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "needs dpkg-dev")
    def test_deb(self):
        deb, usr = self.unpacked_deb()
        fields = dict(re.findall(r"^ (\S+): (.*)$", run("dpkg-deb", "-I", deb), re.MULTILINE))
        self.assertEqual(fields["Package"], "octet-emulation")
        self.assertEqual(fields["Version"], project_version())
        for package in ["libabsl-dev", "libc6", "libstdc++6"]:  # the latter two by shlibdeps
            self.assertIn(package, fields["Depends"])
        names = re.findall(r" (\./\S+)$", run("dpkg-deb", "-c", deb), re.MULTILINE)
        for name in names:
            self.assertTrue("./usr/".startswith(name) or name.startswith("./usr/"), name)
        self.assertIn("./usr/share/doc/octet/LICENSE", names)
        self.assertIn("run", run(usr / "bin" / "octet", "--help"))
        self.build_and_run(usr)


def main():
    global BUILD, CXX
    if len(sys.argv) < 3:
        sys.exit("usage: package_test.py BUILD_DIR CXX [unittest arguments]")
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    CXX = sys.argv.pop(1)
    unittest.main()


if __name__ == "__main__":
    main()
