"""Which header declares a name of the C and C++ libraries, Abseil, GoogleTest and so on: of the names
that the project uses. lacking.py asks for a header of every name with a namespace, and of every macro;
of the names without one, it knows those that stand here.
"""

STANDARD = {
    "algorithm": "adjacent_find all_of any_of clamp copy copy_n count count_if equal fill fill_n find"
                 " find_if is_sorted lower_bound max max_element min min_element minmax_element mismatch"
                 " partial_sort ranges reverse rotate set_intersection shuffle sort swap_ranges transform"
                 " unique",
    "array": "array to_array",
    "array tuple utility variant": "get",
    "atomic": "atomic atomic_ref atomic_thread_fence memory_order memory_order_acq_rel"
              " memory_order_acquire memory_order_relaxed memory_order_release memory_order_seq_cst",
    "bit": "bit_cast bit_ceil bit_floor bit_width countr_zero endian popcount rotr",
    "charconv": "from_chars",
    "chrono": "chrono",
    "cmath": "abs ceil copysign cos exp exp2 fabs floor ilogb isfinite isinf isnan ldexp llround log log2"
             " lround nan nanf nearbyint nextafter pow signbit sin sqrt",
    "condition_variable": "condition_variable",
    "cstddef": "byte size_t to_integer",
    "cstdio": "ferror fflush fprintf fputs fread fwrite printf snprintf",
    "cstdlib": "abort abs exit free getenv",
    "cstring": "memcmp memcpy memmove memset strcmp strerror strrchr",
    "deque": "deque erase_if",
    "exception": "exception",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream",
    "functional": "function hash less",
    "initializer_list": "initializer_list",
    "fstream ios iostream istream ostream sstream": "hex ios",
    "iostream": "cerr cout",
    "istream": "getline",
    "iterator": "back_inserter begin distance end prev size",
    "latch": "latch",
    "limits": "numeric_limits",
    "list": "list",
    "map": "erase_if map multimap",
    "memory": "make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "adopt_lock lock_guard mutex scoped_lock unique_lock",
    "new": "bad_alloc",
    "numbers": "numbers",
    "numeric": "accumulate exclusive_scan iota partial_sum",
    "optional": "nullopt optional",
    "ostream": "ostream",
    "queue": "priority_queue",
    "random": "mersenne_twister_engine mt19937 mt19937_64 normal_distribution seed_seq"
              " uniform_int_distribution uniform_real_distribution",
    "chrono ratio": "micro",
    "set": "erase_if multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "source_location": "source_location",
    "string": "erase getline stoi string to_string",
    "string_view": "string_view",
    "system_error": "errc error_code system_error",
    "thread": "this_thread thread",
    "tuple": "apply make_tuple tie tuple",
    "type_traits": "conditional_t false_type integral_constant is_enum_v is_integral_v is_same_v is_signed_v"
                   " is_trivially_copyable_v make_signed_t remove_cvref_t remove_pointer_t"
                   " remove_reference_t true_type type_identity type_identity_t",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "exchange in_place index_sequence index_sequence_for make_pair move pair swap",
    "vector": "erase erase_if vector",
}
ABSEIL = {
    "algorithm/container": "c_accumulate c_all_of c_any_of c_copy c_copy_if c_count c_count_if c_fill c_find"
                           " c_find_if c_find_if_not c_linear_search c_lower_bound c_max_element"
                           " c_min_element c_move c_replace_if c_sort",
    "container/flat_hash_map": "erase_if flat_hash_map",
    "flags/marshalling": "ParseFlag UnparseFlag",
    "functional/function_ref": "FunctionRef",
    "memory/memory": "WrapUnique",
    "status/status": "AbortedError CancelledError DataLossError DeadlineExceededError ErrnoToStatus"
                     " FailedPreconditionError InternalError InvalidArgumentError IsAborted IsCancelled"
                     " IsDataLoss IsDeadlineExceeded IsFailedPrecondition IsInternal IsInvalidArgument"
                     " IsNotFound IsResourceExhausted IsUnavailable IsUnimplemented NotFoundError OkStatus"
                     " ResourceExhaustedError Status StatusCode UnavailableError UnimplementedError"
                     " UnknownError",
    "status/statusor": "StatusOr",
    "strings/ascii": "AsciiStrToLower StripAsciiWhitespace StripLeadingAsciiWhitespace"
                     " StripTrailingAsciiWhitespace ascii_iscntrl ascii_isdigit ascii_toupper",
    "strings/cord": "Cord",
    "strings/escaping": "CHexEscape Utf8SafeCEscape",
    "strings/match": "EndsWith EndsWithIgnoreCase StartsWith StrContains",
    "strings/numbers": "SimpleAtod SimpleAtoi",
    "strings/str_cat": "AlphaNum Hex StrAppend StrCat",
    "strings/str_format": "FPrintF PrintF StrAppendFormat StrFormat",
    "strings/str_join": "PairFormatter StrJoin",
    "strings/str_replace": "StrReplaceAll",
    "strings/str_split": "MaxSplits SkipEmpty StrSplit",
    "strings/string_view": "string_view",
    "strings/strip": "ConsumePrefix ConsumeSuffix",
    "synchronization/mutex": "Mutex",
    "synchronization/notification": "Notification",
    "time/clock": "Now SleepFor",
    "time/time": "Duration FormatDuration FromChrono Hours InfiniteDuration Microseconds Milliseconds"
                 " Minutes Nanoseconds ParseDuration Seconds Time ToChronoMicroseconds ToChronoNanoseconds"
                 " ToDoubleMicroseconds ToDoubleMilliseconds ToDoubleNanoseconds ToDoubleSeconds"
                 " ToInt64Milliseconds ToInt64Nanoseconds ToInt64Seconds ZeroDuration",
    "types/span": "MakeConstSpan MakeSpan Span",
}
# Namespaces that one or two headers have.
WHOLE = {
    "CLI": {"CLI/CLI.hpp"},
    "benchmark": {"benchmark/benchmark.h"},
    "nlohmann": {"nlohmann/json.hpp"},
}
# GoogleTest's; any other name of `testing` is GoogleMock's.
GTEST = frozenset("""AddGlobalTestEnvironment AssertionFailure AssertionResult AssertionSuccess Combine
    EmptyTestEventListener Environment ExitedWithCode FLAGS_gtest_death_test_style InitGoogleTest Message
    Range TempDir Test TestInfo TestParamInfo TestSuite TestWithParam UnitTest Values ValuesIn
    WithParamInterface internal""".split())
# Functions, types and macros of C and POSIX without a namespace.
PLAIN = {
    "cerrno errno.h": "errno E2BIG EACCES EAGAIN EBADF EBUSY EEXIST EFAULT EINTR EINVAL EIO EISDIR ENOENT"
                      " ENOMEM ENOSPC ENOSYS ENOTDIR EPERM EPIPE ERANGE ESRCH ETIMEDOUT",
    "cfloat": "DBL_EPSILON DBL_MAX DBL_MIN FLT_EPSILON FLT_MAX FLT_MIN",
    "climits": "CHAR_BIT INT_MAX INT_MIN LLONG_MAX LONG_MAX PATH_MAX UINT_MAX ULLONG_MAX",
    "cmath": "HUGE_VAL HUGE_VALF INFINITY M_PI NAN fma fmaf",
    "csignal signal.h": "SIGABRT SIGALRM SIGCHLD SIGINT SIGKILL SIGSEGV SIGSTOP SIGTERM kill raise sigaction"
                        " signal",
    "cstddef": "offsetof ptrdiff_t size_t",
    "cstdint stdint.h": "INT16_MAX INT32_MAX INT32_MIN INT64_MAX INT64_MIN INT8_MAX SIZE_MAX UINT16_MAX"
                        " UINT32_MAX UINT64_MAX UINT8_MAX int16_t int32_t int64_t int8_t intptr_t uint16_t"
                        " uint32_t uint64_t uint8_t uintptr_t uint_fast32_t",
    "cstdio": "EOF FILE fclose fdopen ferror fflush fgets fileno fopen fprintf fputs fread fwrite pclose"
              " popen printf puts rename snprintf sscanf stderr stdin stdout vsnprintf",
    "cstdlib": "EXIT_FAILURE EXIT_SUCCESS abort aligned_alloc atexit calloc exit getenv malloc mkdtemp"
               " mkstemp posix_memalign qsort rand realloc setenv strtod strtol strtoul strtoull system"
               " unsetenv",
    "cstring": "memchr memcmp memcpy memmove memset strchr strcmp strdup strerror strlen strncmp strncpy"
               " strrchr strstr",
    "ctime time.h": "CLOCK_MONOTONIC CLOCK_MONOTONIC_COARSE CLOCK_REALTIME CLOCK_THREAD_CPUTIME_ID"
                    " clock_gettime gmtime_r localtime_r nanosleep strftime timespec",
    "cassert": "assert",
    "cctype": "isalnum isalpha isdigit isspace tolower toupper",
    "dirent.h": "closedir opendir readdir",
    "dlfcn.h": "RTLD_DEFAULT RTLD_DL_LINKMAP RTLD_GLOBAL RTLD_LAZY RTLD_LOCAL RTLD_NEXT RTLD_NOLOAD RTLD_NOW"
               " dladdr dladdr1 dlclose dlerror dlopen dlsym",
    "elf.h link.h": "ELFMAG0 PT_LOAD SHT_SYMTAB STT_FUNC",
    "fcntl.h": "O_APPEND O_CLOEXEC O_CREAT O_EXCL O_NOCTTY O_NONBLOCK O_RDONLY O_RDWR O_TRUNC O_WRONLY"
               " fcntl",
    "fnmatch.h": "fnmatch",
    "link.h": "dl_iterate_phdr",
    "malloc.h": "M_ARENA_MAX mallinfo2 malloc_trim mallopt",
    "pthread.h": "pthread_attr_destroy pthread_attr_getstack pthread_attr_init pthread_attr_setstacksize"
                 " pthread_create pthread_getattr_default_np pthread_getattr_np pthread_join pthread_self"
                 " pthread_setattr_default_np pthread_setname_np",
    "sched.h": "CPU_ISSET CPU_SET CPU_SETSIZE CPU_ZERO sched_getaffinity sched_setaffinity sched_yield",
    "sys/mman.h": "MADV_DONTNEED MADV_NOHUGEPAGE MAP_ANONYMOUS MAP_FAILED MAP_FIXED MAP_NORESERVE"
                  " MAP_PRIVATE MAP_SHARED MFD_CLOEXEC PROT_NONE PROT_READ PROT_WRITE madvise memfd_create"
                  " mincore mmap mprotect munmap shm_open shm_unlink",
    "sys/resource.h": "getrlimit getrusage setrlimit",
    "sys/socket.h": "socket",
    "sys/stat.h": "S_ISCHR S_ISDIR S_ISREG fstat lstat mkdir",
    "sys/types.h unistd.h sys/stat.h fcntl.h": "mode_t off_t pid_t ssize_t",
    "sys/wait.h": "WEXITSTATUS WIFEXITED WIFSIGNALED WNOHANG WTERMSIG waitpid",
    "ucontext.h": "getcontext makecontext setcontext swapcontext",
    "unistd.h": "R_OK STDERR_FILENO STDIN_FILENO STDOUT_FILENO W_OK X_OK _exit dup dup2 execv execve execvp"
                " fsync ftruncate getpagesize getpid getppid gettid getuid gethostname isatty pread"
                " pwrite rmdir sysconf unlink usleep",
}
# Functions whose names may mean something else where they are not called.
CALLED = {"alarm": "unistd.h", "close": "unistd.h", "open": "fcntl.h", "sleep": "unistd.h"}
# Macros by how they begin.
FAMILIES = {
    r"ABSL_(GUARDED_BY|\w*LOCK\w*|LOCKABLE)\b": {"absl/base/thread_annotations.h"},
    r"(EXPECT|ASSERT)_(THAT|CALL)\b|MATCHER\w*": {"gmock/gmock.h"},
    r"(EXPECT|ASSERT)_\w+|TEST|TEST_[FP]|ADD_FAILURE\w*|FAIL|SUCCEED|SCOPED_TRACE|GTEST_\w+|RUN_ALL_TESTS"
    r"|INSTANTIATE_TEST_SUITE_P": {"gtest/gtest.h", "gmock/gmock.h"},
    r"MPI_\w+": {"mpi.h"},
    r"NCCL_\w+": {"rccl/rccl.h"},
    r"XLA_FFI_\w+": {"xla/ffi/api/ffi.h"},
}


def _headers_of():
    found = {}

    def add(name, *headers):
        found.setdefault(name, set()).update(headers)

    for headers, names in STANDARD.items():
        for name in names.split():
            add(f"std::{name}", *headers.split())
    for header, names in ABSEIL.items():
        for name in names.split():
            add(f"absl::{name}", f"absl/{header}.h")
    for headers, names in PLAIN.items():
        for name in names.split():
            add(name, *headers.split())
    return found


HEADERS_OF = _headers_of()


def headers_of(name):
    """The headers of which one declares a name; None for one that stands here nowhere."""
    namespace, _, last = name.rpartition("::")
    if namespace in WHOLE:
        return WHOLE[namespace]
    if namespace == "testing":
        return {"gtest/gtest.h", "gmock/gmock.h"} if last in GTEST else {"gmock/gmock.h"}
    return HEADERS_OF.get(name)
