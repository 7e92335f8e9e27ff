"""Puts the library that the environment variable OCTET_LIBRARY names into the package, if any."""

import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        library = os.environ.get("OCTET_LIBRARY")
        if library:
            package = pathlib.Path(self.build_lib) / "octet"
            package.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, package / "liboctet.so.0")


setup(cmdclass={"build_py": BuildWithLibrary})
