"""Puts the library that the environment variable OCTET_LIBRARY names into the package, if any, and
the handlers for JAX, if JAX is installed."""

import os
import pathlib
import shutil
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import build_jax  # noqa: E402


class BuildWithLibraries(build_py):
    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "octet"
        library = os.environ.get("OCTET_LIBRARY")
        if library:
            package.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, package / "liboctet.so.0")
        _, problem = build_jax.build(package)
        if problem:
            print(problem)


setup(cmdclass={"build_py": BuildWithLibraries})
