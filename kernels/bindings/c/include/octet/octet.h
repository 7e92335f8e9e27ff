// Octet's interface in C, for programs in C, Rust, Go, Python and others. docs/bindings.md has a
// guide; the headers in C++ that comments name say more about each call.
//
// Errors. Functions return 0 or an error code (enum octet_code). octet_last_error() then has the
// sentence: which argument, rank or call it was, the value, and what to do. Nothing of C++ crosses
// this interface: no exception, and no call ends the process. Arguments are checked before anything
// is enqueued.
//
// Structs. The first member is the size of the struct as the caller knows it, sizeof. All other
// members are optional where the comment does not say otherwise: 0 is the default, so that
//
//   octet_ep_config config = {.size = sizeof config, .num_experts = 256, ...};
//
// sets what it names. A program that was compiled for an older Octet gives shorter structs, which
// are accepted: what they lack has its default, or is not filled in. A longer struct is refused.
//
// Handles are made by octet_..._create and ended by octet_..._destroy, which accepts NULL. Objects
// made on a domain may be destroyed after it. Any thread may use a handle, if only one thread at a
// time does and the comment does not say otherwise.
//
// Names. R ranks, E experts, L = E / R local experts, T tokens of a call, M most tokens of a rank,
// K choices of a token, H elements of a row. "GPU memory" is memory of the rank's own GPU, 16-byte
// aligned.
#ifndef OCTET_OCTET_H_
#define OCTET_OCTET_H_

#include "octet/c/core.h"
#include "octet/c/functional.h"
#include "octet/c/layers.h"

#endif  // OCTET_OCTET_H_
