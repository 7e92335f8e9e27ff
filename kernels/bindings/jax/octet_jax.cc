// Handlers of XLA's FFI over the functions of <octet/octet.h>: what octet.jax calls from compiled
// programs. A handler runs on XLA's thread of a device, and enqueues on XLA's stream.
//
// The library is linked to neither XLA nor Octet: XLA's headers come from the jaxlib that is
// installed (jax.ffi.include_dir()), and Octet's functions from the liboctet that the Python
// package has loaded.
#include <dlfcn.h>
#include <xla/ffi/api/ffi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "octet/octet.h"

namespace octet::jax {
namespace {

namespace ffi = ::xla::ffi;

constexpr int kMaxDevices = 64;

// The functions of liboctet that handlers call.
struct Functions {
  decltype(&octet_last_error) last_error;
  decltype(&octet_fail) fail;
  decltype(&octet_domain_call) domain_call;
  decltype(&octet_functional_dispatch) dispatch;
  decltype(&octet_functional_combine) combine;
  decltype(&octet_functional_rows) rows;
  decltype(&octet_layer_forward) layer_forward;
  decltype(&octet_gemm_run) gemm_run;
};

// An object of Octet's that programs name by a number: a compiled program may outlive it, or come
// from another process' cache.
struct Object {
  octet_domain* domain = nullptr;
  std::array<void*, kMaxDevices> of_device = {};  // the object, for a rank its own
  std::array<int32_t, kMaxDevices> rank_of_device = {};
};

class Objects {
 public:
  static Objects& Get() {
    static auto* const objects = new Objects;
    return *objects;
  }

  int64_t Add(std::shared_ptr<const Object> object) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    objects_.emplace(++last_, std::move(object));
    return last_;
  }
  void Remove(int64_t id) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    objects_.erase(id);
  }
  std::shared_ptr<const Object> Find(int64_t id) const {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = objects_.find(id);
    return found == objects_.end() ? nullptr : found->second;
  }

  Functions functions = {};

 private:
  mutable std::shared_mutex mutex_;
  std::map<int64_t, std::shared_ptr<const Object>> objects_;
  int64_t last_ = 0;
};

// Says where a call runs, in the words of XLA, and whose it is.
struct Where {
  void* stream;
  int32_t device;
  int64_t object;
};

// Calls body(functions, rank, its number, object) for the rank of XLA's device.
template <typename Body>
ffi::Error CallRank(const Where& where, const Body& body) {
  const Objects& objects = Objects::Get();
  const std::shared_ptr<const Object> object = objects.Find(where.object);
  if (object == nullptr) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "octet.jax: the program was compiled for object " +
                          std::to_string(where.object) +
                          ", which is no more, or of another process; trace it again");
  }
  const bool known = where.device >= 0 && where.device < kMaxDevices;
  const int32_t rank = known ? object->rank_of_device[static_cast<size_t>(where.device)] : -1;
  if (rank < 0) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "octet.jax: the program runs on device " + std::to_string(where.device) +
                          ", which is none of the node's");
  }
  struct Call {
    const Body* body;
    const Functions* functions;
    void* object;
    int32_t rank;
  } call = {&body, &objects.functions, object->of_device[static_cast<size_t>(where.device)], rank};
  const int32_t code = objects.functions.domain_call(
      object->domain, rank, where.stream,
      [](octet_rank* of, void* user) -> int32_t {
        const auto& given = *static_cast<const Call*>(user);
        return (*given.body)(*given.functions, of, given.rank, given.object);
      },
      &call);
  if (code == OCTET_OK) return ffi::Error::Success();
  return ffi::Error(static_cast<ffi::ErrorCode>(code), objects.functions.last_error());
}

template <typename T = void>
T* DataOf(const ffi::AnyBuffer& buffer) {
  return buffer.element_count() == 0 ? nullptr : static_cast<T*>(buffer.untyped_data());
}

using Out = ffi::Result<ffi::AnyBuffer>;

// The operand behind topk_weights, if there is one, is the memory of `rows`.
ffi::Error Dispatch(void* stream, int32_t device, int64_t object, int64_t line, int64_t zero_rest,
                    ffi::AnyBuffer x, ffi::AnyBuffer topk_idx, ffi::AnyBuffer topk_weights,
                    ffi::RemainingArgs into, Out rows, Out expert_counts, Out expert_offsets,
                    Out sources, Out row_weights, Out ticket) {
  return CallRank(
      {stream, device, object},
      [&](const Functions& octet, octet_rank* rank, int32_t number, void* of) -> int32_t {
        auto* const functional = static_cast<octet_functional*>(of);
        if (into.size() > 0) {
          void* received = nullptr;
          const int32_t code = octet.rows(functional, number, &received);
          if (code != OCTET_OK) return code;
          if (received != rows->untyped_data()) {
            return octet.fail(
                OCTET_FAILED_PRECONDITION,
                "octet.jax: the rows' memory has been copied by XLA: donate `into` to the "
                "program, carry it through loops, and use earlier rows before the next "
                "dispatch only");
          }
        }
        octet_dispatch_args args = {};
        args.size = sizeof args;
        args.x = x.untyped_data();
        args.topk_idx = DataOf<const int32_t>(topk_idx);
        args.topk_weights = DataOf<const float>(topk_weights);
        args.num_tokens = x.dimensions()[0];
        octet_delivery to = {};
        to.size = sizeof to;
        to.x = rows->untyped_data();
        to.expert_counts = DataOf<int32_t>(*expert_counts);
        to.expert_offsets = DataOf<int32_t>(*expert_offsets);
        to.sources = DataOf<int32_t>(*sources);
        to.row_weights = DataOf<float>(*row_weights);
        to.ticket = DataOf<float>(*ticket);
        to.zero_rest = static_cast<int32_t>(zero_rest);
        to.line = static_cast<int32_t>(line);
        return octet.dispatch(functional, rank, &args, &to);
      });
}

ffi::Error Combine(void* stream, int32_t device, int64_t object, int64_t line, int64_t unweighted,
                   ffi::AnyBuffer expert_out, ffi::AnyBuffer topk_idx, ffi::AnyBuffer topk_weights,
                   ffi::AnyBuffer ticket, Out y) {
  return CallRank(
      {stream, device, object},
      [&](const Functions& octet, octet_rank* rank, int32_t /*number*/, void* of) -> int32_t {
        octet_delivered_args args = {};
        args.size = sizeof args;
        args.ticket = DataOf<const float>(ticket);
        args.topk_idx = DataOf<const int32_t>(topk_idx);
        args.topk_weights = DataOf<const float>(topk_weights);
        args.num_tokens = topk_idx.dimensions()[0];
        args.expert_out = expert_out.untyped_data();
        args.y = y->untyped_data();
        args.unweighted = static_cast<int32_t>(unweighted);
        args.line = static_cast<int32_t>(line);
        return octet.combine(static_cast<octet_functional*>(of), rank, &args);
      });
}

ffi::Error Layer(void* stream, int32_t device, int64_t object, ffi::AnyBuffer x, Out y) {
  return CallRank(
      {stream, device, object},
      [&](const Functions& octet, octet_rank* rank, int32_t /*number*/, void* of) -> int32_t {
        return octet.layer_forward(static_cast<octet_layer*>(of), rank, x.untyped_data(),
                                   x.dimensions()[0], y->untyped_data());
      });
}

ffi::Error Gemm(void* stream, int32_t device, int64_t object, ffi::AnyBuffer a, ffi::AnyBuffer b,
                ffi::AnyBuffer expert_offsets, Out out) {
  return CallRank(
      {stream, device, object},
      [&](const Functions& octet, octet_rank* rank, int32_t /*number*/, void* of) -> int32_t {
        octet_gemm_args args = {};
        args.size = sizeof args;
        args.a = a.untyped_data();
        args.b = b.untyped_data();
        args.expert_offsets = DataOf<const int32_t>(expert_offsets);
        args.out = out->untyped_data();
        args.rows = a.dimensions()[0];
        return octet.gemm_run(static_cast<octet_gemm*>(of), rank, &args);
      });
}

}  // namespace
}  // namespace octet::jax

#define OCTET_CALL(...)                         \
  ::xla::ffi::Ffi::Bind()                       \
      .Ctx<::xla::ffi::PlatformStream<void*>>() \
      .Ctx<::xla::ffi::DeviceOrdinal>()         \
      .Attr<int64_t>("object") __VA_ARGS__

#pragma GCC visibility push(default)
using octet::jax::Objects;
using Buffer = ::xla::ffi::AnyBuffer;

// A handler, and one of the same calls that XLA may capture.
#define OCTET_HANDLERS(name, function, ...)                             \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, function, __VA_ARGS__);           \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name##_captured, function, __VA_ARGS__, \
                                {::xla::ffi::Traits::kCmdBufferCompatible})

OCTET_HANDLERS(octet_jax_dispatch, octet::jax::Dispatch,
               OCTET_CALL(.Attr<int64_t>("line").Attr<int64_t>("zero_rest"))
                   .Arg<Buffer>()
                   .Arg<Buffer>()
                   .Arg<Buffer>()
                   .RemainingArgs()
                   .Ret<Buffer>()
                   .Ret<Buffer>()
                   .Ret<Buffer>()
                   .Ret<Buffer>()
                   .Ret<Buffer>()
                   .Ret<Buffer>());
OCTET_HANDLERS(octet_jax_combine, octet::jax::Combine,
               OCTET_CALL(.Attr<int64_t>("line").Attr<int64_t>("unweighted"))
                   .Arg<Buffer>()
                   .Arg<Buffer>()
                   .Arg<Buffer>()
                   .Arg<Buffer>()
                   .Ret<Buffer>());
OCTET_HANDLERS(octet_jax_layer, octet::jax::Layer, OCTET_CALL().Arg<Buffer>().Ret<Buffer>());
// Waits for nobody, so that it may always be captured.
XLA_FFI_DEFINE_HANDLER_SYMBOL(octet_jax_gemm, octet::jax::Gemm,
                              OCTET_CALL().Arg<Buffer>().Arg<Buffer>().Arg<Buffer>().Ret<Buffer>(),
                              {::xla::ffi::Traits::kCmdBufferCompatible});

extern "C" {

// Takes Octet's functions from `library`, a handle of dlopen. Returns the name of one that it
// lacks, or NULL.
const char* octet_jax_use(void* library) {
  octet::jax::Functions& to = Objects::Get().functions;
  const auto take = [library](const char* name, auto* function) {
    void* const found = dlsym(library, name);
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(found);
    return found == nullptr ? name : nullptr;
  };
  for (const char* missing :
       {take("octet_last_error", &to.last_error), take("octet_fail", &to.fail),
        take("octet_domain_call", &to.domain_call), take("octet_functional_dispatch", &to.dispatch),
        take("octet_functional_combine", &to.combine), take("octet_functional_rows", &to.rows),
        take("octet_layer_forward", &to.layer_forward), take("octet_gemm_run", &to.gemm_run)}) {
    if (missing != nullptr) return missing;
  }
  return nullptr;
}

// Makes an object known whose rank r is on XLA's device devices[r] and has handles[r]. Returns its
// number, or -1.
int64_t octet_jax_add(void* domain, void* const* handles, const int32_t* devices,
                      int32_t num_ranks) {
  auto object = std::make_shared<octet::jax::Object>();
  object->domain = static_cast<octet_domain*>(domain);
  object->rank_of_device.fill(-1);
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    if (devices[rank] < 0 || devices[rank] >= octet::jax::kMaxDevices) return -1;
    const auto device = static_cast<size_t>(devices[rank]);
    object->rank_of_device[device] = rank;
    object->of_device[device] = handles[rank];
  }
  return Objects::Get().Add(std::move(object));
}

void octet_jax_remove(int64_t object) { Objects::Get().Remove(object); }

}  // extern "C"

#pragma GCC visibility pop
