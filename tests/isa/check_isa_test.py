#!/usr/bin/env python3
"""Shows that check_isa.py fails when it should: check_isa_test.py ASSEMBLY.s

ASSEMBLY.s is what the compiler makes of tests/platform/device_ops_kernels.hip, which has a site of every
kind. Each test spoils a copy of it in one place.
"""

import os
import re
import sys
import tempfile
import unittest

import block_stores
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

    def test_write_back_before_the_wait(self):
        for kind in ("publish", "release", "atomic_acq_rel"):
            with self.subTest(kind=kind):
                text = self.spoil_site(
                    kind, r"\A(.*\n)((?:.*\n)*?)(.*buffer_wbl2 sc0 sc1\n)", r"\1\3\2")
                self.expect_error(text, f"{kind}: buffer_wbl2")

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

    def test_row_that_bypasses_the_caches(self):
        for scope in ("sc1", "sc0 sc1"):
            text = self.spoil(r"(global_load_dwordx4 v\[\d+:\d+\].*) nt", rf"\1 {scope} nt")
            self.expect_error(text, "rows pass through the caches")

    def test_rows_that_nothing_acquires(self):
        # The packets that the kernel reads are no substitute.
        text = re.sub(r"; octet\.(acquire|consume)\.\w+|buffer_inv sc0 sc1", "", self.good)
        self.expect_error(text, "octet::Messages: polls and loads rows, but acquires nothing")

    def test_rows_that_nothing_releases(self):
        text = re.sub(r"; octet\.(publish|release)\.\w+|buffer_wbl2 sc0 sc1", "", self.good)
        self.expect_error(text, "octet::Messages: stores rows and tells peers, but releases")

    def test_required_sites(self):
        self.assertEqual(self.errors(self.good, "Messages publish acquire row # comment\n"), [])
        self.assertIn("no 'row' site", self.errors(self.good, "Atomics row\n")[0])
        self.assertIn("a 'row' site", self.errors(self.good, "Messages !row\n")[0])
        self.assertIn("no kernel matches", self.errors(self.good, "Nowhere row\n")[0])

    def test_accesses_of_device_scope(self):
        for kind, word in ("poll", "device_load"), ("store", "device_store"):
            with self.subTest(word=word):
                self.assertIn(f"no '{word}' site", self.errors(self.good, f"Messages {word}\n")[0])
                text = self.spoil_site(kind, r"(global_\w+_dword.*)sc0 sc1", r"\1sc1")
                text = re.sub(rf"; octet\.{kind}\.\w+", "", text)
                self.assertFalse([error for error in self.errors(text, f"Messages {word}\n")
                                  if word in error])

    def test_block_barrier_before_a_release_does_not_wait(self):
        text = self.spoil(r"(\tglobal_store_dwordx4 [^\n]* sc0 sc1\n(?:(?!s_barrier).*\n)*?)"
                          r"\ts_waitcnt vmcnt\(0\)\n(\t;;#ASMEND\n\ts_barrier)", r"\1\2")
        self.expect_error(text, "octet::Messages: s_barrier without s_waitcnt vmcnt(0)")

    def test_function_that_is_no_longer_inlined(self):
        text = self.spoil(r"(8Messages[^\n]*: *; @(?:.*\n)*?)(\ts_endpgm)",
                          r"\1\ts_swappc_b64 s[30:31], s[4:5]\n\2")
        self.expect_error(text, "octet::Messages: calls a function")
        self.assertEqual(self.errors(text, "Messages calls\n"), [])

    def test_scratch_memory(self):
        text = self.spoil(r"(\.amdhsa_kernel \S*8Messages(?:.*\n)*?"
                          r".*\.amdhsa_private_segment_fixed_size) 0", r"\1 16")
        self.expect_error(text, "octet::Messages: uses 16 bytes of scratch memory; expected are 0")
        self.assertEqual(self.errors(text, "Messages scratch=16\n"), [])
        self.assertEqual(self.errors(text, "Messages scratch=any\n"), [])
        for spoiled, expected in (text, 8), (self.good, 16):
            errors = self.errors(spoiled, f"Messages scratch={expected}\n")
            self.assertIn(f"expected are {expected}", errors[0])

    def test_scratch_memory_that_is_used(self):
        text = self.spoil(r"(8Messages[^\n]*: *; @(?:.*\n)*?)(\ts_endpgm)",
                          r"\1\tscratch_store_dword off, v1, s0\n\2")
        error = "octet::Messages: scratch_store_dword: no instruction may use scratch memory"
        self.expect_error(text, error)
        self.assertEqual(self.errors(text, "Messages scratch=any\n"), [])

    def test_no_kernels(self):
        self.assertEqual(self.errors(""), ["no kernel found"])


class BlockStoresTest(unittest.TestCase):
    """Small functions: STORE is of a row, TELL a release and the flag that it publishes."""

    STORE = "global_store_dwordx4 v[0:1], v[2:5], off nt"
    WAIT = "s_waitcnt vmcnt(0)"
    BARRIER = "s_barrier"
    TELL = ["buffer_wbl2 sc0 sc1", "s_waitcnt vmcnt(0)",
            "global_store_dword v[0:1], v2, off sc0 sc1"]

    def found(self, *code):
        """How many barriers are found in a function."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kernel.s")
            with open(path, "w", encoding="utf-8") as file:
                lines = [line if line.endswith(":") else f"\t{line.replace(' ', chr(9), 1)}"
                         for line in code]
                file.write("\n".join(["kernel:  ; @kernel", *lines, ".Lfunc_end0:", ""]))
            function = check_isa.parse(path)[0]
        return len(block_stores.uncovered(function.code, function.labels))

    def test_straight(self):
        self.assertEqual(self.found(self.STORE, self.BARRIER, *self.TELL), 1)
        self.assertEqual(self.found(self.STORE, self.WAIT, self.BARRIER, *self.TELL), 0)
        self.assertEqual(self.found(self.STORE, "s_waitcnt vmcnt(1)", self.BARRIER, *self.TELL), 1)
        self.assertEqual(self.found(self.STORE, self.WAIT, self.STORE, self.BARRIER, *self.TELL), 1)
        self.assertEqual(self.found(self.BARRIER, self.WAIT, *self.TELL), 0)

    def test_wait_behind_the_barrier_is_that_of_one_wave(self):
        self.assertEqual(self.found(self.STORE, self.BARRIER, self.WAIT, *self.TELL), 1)

    def test_only_the_last_barrier_counts(self):
        self.assertEqual(
            self.found(self.STORE, self.BARRIER, self.WAIT, self.BARRIER, *self.TELL), 0)

    def test_waves_that_publish_their_own_rows(self):
        self.assertEqual(self.found(self.STORE, self.BARRIER, self.STORE, *self.TELL), 0)

    def test_flag_that_is_not_released(self):
        self.assertEqual(self.found(self.STORE, self.BARRIER, self.TELL[-1]), 0)

    def test_atomic_publishes(self):
        self.assertEqual(self.found(self.STORE, self.BARRIER, *self.TELL[:2],
                                    "global_atomic_add v0, v1, v2, s[0:1] sc0 sc1"), 1)

    def test_wait_on_one_of_two_paths(self):
        self.assertEqual(self.found(self.STORE, "s_cbranch_execz .LBB0_1", self.WAIT, ".LBB0_1:",
                                    self.BARRIER, *self.TELL), 1)

    def test_store_of_the_round_before(self):
        self.assertEqual(self.found(".LBB0_1:", self.BARRIER, *self.TELL,
                                    "global_store_dword v[0:1], v2, off",
                                    "s_cbranch_scc1 .LBB0_1", "s_endpgm"), 1)

    def test_alternatives_that_exclude_each_other(self):
        def code(value):
            return ["s_mov_b64 s[4:5], -1", "s_cbranch_scc1 .LBB0_1", self.STORE,
                    f"s_mov_b64 s[4:5], {value}", ".LBB0_1:", "s_and_b64 vcc, exec, s[4:5]",
                    "s_cbranch_vccz .LBB0_2", self.BARRIER, *self.TELL, ".LBB0_2:", "s_endpgm"]
        self.assertEqual(self.found(*code("0")), 0)
        self.assertEqual(self.found(*code("-1")), 1)
        self.assertEqual(self.found(*code("s[6:7]")), 1)

    def test_nothing_behind_the_end(self):
        self.assertEqual(self.found(self.STORE, "s_endpgm", self.BARRIER, *self.TELL), 0)


if __name__ == "__main__":
    ASSEMBLY = sys.argv.pop()
    unittest.main()
