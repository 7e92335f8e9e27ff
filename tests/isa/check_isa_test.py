#!/usr/bin/env python3
"""Shows that check_isa.py fails when it should: check_isa_test.py ASSEMBLY.s

ASSEMBLY.s is what the compiler makes of tests/device_ops_kernels.hip, which has a site of every
kind. Each test spoils a copy of it in one place.
"""

import os
import re
import sys
import tempfile
import unittest

import check_isa

ASSEMBLY = ""


class CheckIsaTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        with open(ASSEMBLY, encoding="utf-8") as file:
            cls.good = file.read()

    def errors(self, text, required=None):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernels.s")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            if required is not None:
                list_path = os.path.join(folder, "required.txt")
                with open(list_path, "w", encoding="utf-8") as file:
                    file.write(required)
                required = list_path
            return check_isa.check([path], required)[1]

    def spoil_site(self, kind, pattern, replacement):
        """The assembly with every `pattern` inside the first site of this kind replaced."""
        begin = self.good.index(f"; octet.{kind}.begin")
        end = self.good.index(f"; octet.{kind}.end", begin)
        body, count = re.subn(pattern, replacement, self.good[begin:end])
        self.assertGreater(count, 0, f"{pattern} is not in site {kind}")
        return self.good[:begin] + body + self.good[end:]

    def spoil(self, pattern, replacement):
        text, count = re.subn(pattern, replacement, self.good, count=1)
        self.assertEqual(count, 1, f"{pattern} is not in the assembly")
        return text

    def expect_error(self, text, message):
        errors = self.errors(text)
        self.assertTrue(any(message in error for error in errors),
                        f"wanted '{message}', got {errors}")

    def test_compilers_assembly_is_good(self):
        self.assertEqual(self.errors(self.good), [])

    def test_every_kind_of_site_is_there(self):
        for kind in check_isa.STEPS:
            self.assertIn(f"; octet.{kind}.begin", self.good)

    def test_missing_step_of_a_site(self):
        for kind, pattern, message in (
            ("publish", r"buffer_wbl2 sc0 sc1", "publish: buffer_wbl2"),
            ("publish", r"s_waitcnt vmcnt\(0\).*", "publish: s_waitcnt"),
            ("release", r"buffer_wbl2 sc0 sc1", "release: buffer_wbl2"),
            ("release", r"s_waitcnt vmcnt\(0\).*", "release: s_waitcnt"),
            ("acquire", r"buffer_inv sc0 sc1", "acquire: buffer_inv"),
            ("consume", r"buffer_inv sc0 sc1", "consume: buffer_inv"),
            ("consume", r"s_waitcnt vmcnt\(0\).*", "consume: s_waitcnt"),
            ("atomic_acq_rel", r"buffer_wbl2 sc0 sc1", "atomic_acq_rel: buffer_wbl2"),
        ):
            with self.subTest(kind=kind, missing=pattern):
                self.expect_error(self.spoil_site(kind, pattern, ""), message)

    def test_scope_too_narrow(self):
        for kind, instruction in (
            ("publish", "buffer_wbl2"), ("publish", "global_store_dword"),
            ("release", "buffer_wbl2"), ("store", "global_store_dword"),
            ("poll", "global_load_dword"), ("acquire", "buffer_inv"),
            ("consume", "global_load_dword"), ("consume", "buffer_inv"),
        ):
            with self.subTest(kind=kind, instruction=instruction):
                text = self.spoil_site(kind, rf"({instruction}.*)sc0 sc1", r"\1sc1")
                self.expect_error(text, f"{kind}: ")

    def test_store_before_the_write_back(self):
        text = self.spoil_site("publish", r"(buffer_wbl2 sc0 sc1\n)((?:.*\n)*?)(.*global_store.*\n)",
                               r"\3\1\2")
        self.expect_error(text, "publish: a global store")

    def test_flag_through_a_flat_store(self):
        self.expect_error(self.spoil_site("publish", "global_store", "flat_store"), "flat_store")

    def test_site_without_its_comments(self):
        text = re.sub(r"; octet\.publish\.\w+", "", self.good)
        self.expect_error(text, "outside of any site")

    def test_site_that_does_not_end(self):
        self.expect_error(self.good.replace("; octet.store.end", ""), "store")

    def test_polls_that_nothing_follows(self):
        text = re.sub(r"; octet\.(acquire|consume)\.\w+|buffer_inv sc0 sc1", "", self.good)
        text = re.sub(r"(global_load_dwordx4.*) sc0 sc1", r"\1", text)
        self.expect_error(text, "polls, but neither consumes")

    def test_flags_that_are_never_published(self):
        text = re.sub(r"; octet\.(publish|release)\.\w+|buffer_wbl2 sc0 sc1", "", self.good)
        self.expect_error(text, "stores flags, but publishes nothing")

    def test_narrow_row_copy(self):
        self.expect_error(self.spoil(r"global_load_dwordx4 v\[\d+:\d+\](.*) nt",
                                     r"global_load_dwordx2 v[0:1]\1 nt"), "rows move as")

    def test_flat_row_copy(self):
        self.expect_error(self.spoil(r"global_store_dwordx4 (.*), off nt",
                                     r"flat_store_dwordx4 \1 nt"), "rows move as")

    def test_required_sites(self):
        self.assertEqual(self.errors(self.good, "Messages publish acquire row # comment\n"), [])
        self.assertIn("no 'row' site", self.errors(self.good, "Atomics row\n")[0])
        self.assertIn("a 'row' site", self.errors(self.good, "Messages !row\n")[0])
        self.assertIn("no kernel matches", self.errors(self.good, "Nowhere row\n")[0])

    def test_no_kernels(self):
        self.assertEqual(self.errors(""), ["no kernel found"])


if __name__ == "__main__":
    ASSEMBLY = sys.argv.pop()
    unittest.main()
