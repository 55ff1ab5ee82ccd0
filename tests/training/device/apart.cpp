// A device of torch's for tests, "apart": its memory is its own, and every kernel is the CPU's, on copies.
//
// A tensor that lies elsewhere is refused, as a GPU refuses it, but for a scalar and for an index.

#include <ATen/EmptyTensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/view_native.h>
#include <ATen/native/Resize.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>

namespace {

constexpr auto HERE = c10::DeviceType::PrivateUse1;

c10::Device here() {
  return {HERE, 0};
}

struct Guard final : c10::impl::NoOpDeviceGuardImpl<HERE> {
  c10::Device getDevice() const override { return here(); }
  c10::Device exchangeDevice(c10::Device) const override { return here(); }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, here()); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(here()); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto data = storage.allocator()->allocate(size);
    std::memcpy(data.get(), storage.data(), std::min(size, storage.nbytes()));
    storage.set_data_ptr(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(size);
  }
};

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::aligned_alloc(64, (bytes / 64 + 1) * 64);
    return {data, data, &std::free, here()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &std::free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

Memory memory;
REGISTER_ALLOCATOR(HERE, &memory);

at::Tensor empty(
    c10::SymIntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device>,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(size), &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device>,
    std::optional<bool>) {
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &memory,
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

// The same bytes as a CPU's tensor: for copies alone.
at::Tensor seen_from_cpu(const at::Tensor& x) {
  if (x.device().is_cpu()) return x;
  return at::from_blob(x.data_ptr(), x.sizes(), x.strides(), x.options().device(at::kCPU).requires_grad(false));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  at::AutoDispatchBelowAutograd plain;
  auto target = seen_from_cpu(to.is_conj() ? to.conj() : to);
  target.copy_(seen_from_cpu(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Tensor as_strided(
    const at::Tensor& x, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
  std::optional<int64_t> at = offset ? std::optional<int64_t>(offset->guard_int(__FILE__, __LINE__)) : std::nullopt;
  return at::cpu::as_strided(x, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), at);
}

at::Tensor view(const at::Tensor& x, c10::SymIntArrayRef size) {
  return at::native::view(x, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor reshape_alias(const at::Tensor& x, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return as_strided(x, size, stride, std::nullopt);
}

const at::Tensor& resize(const at::Tensor& x, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* impl = x.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  auto needed = x.storage_offset() * x.itemsize() + impl->numel() * x.itemsize();
  if (needed > x.storage().nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(x.storage(), needed);
  return x;
}

at::Scalar local_scalar(const at::Tensor& x) {
  return seen_from_cpu(x).item();
}

at::Tensor& set_storage(
    at::Tensor& x, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::cpu::set_(
      x, std::move(storage), offset.guard_int(__FILE__, __LINE__), C10_AS_INTARRAYREF_SLOW(size),
      C10_AS_INTARRAYREF_SLOW(stride));
}

at::Tensor& set_whole_storage(at::Tensor& x, at::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / x.itemsize());
  return at::cpu::set_(x, std::move(storage), 0, {count}, {1});
}

// Of whole numbers too, as on a GPU: the experts' layers count tokens by it.
at::Tensor histc(const at::Tensor& x, int64_t bins, const at::Scalar& low, const at::Scalar& high) {
  return x.cpu().to(at::kFloat).histc(bins, low, high).to(x.options());
}

// A GPU takes a scalar from the CPU, and the places of an index.
void refuse_elsewhere(const c10::OperatorHandle& op, const at::Tensor& x) {
  if (!x.defined() || x.device().type() == HERE || x.dim() == 0) return;
  TORCH_CHECK(
      false, "Expected all tensors to be on the same device, but found at least two devices, apart:0 and ", x.device(),
      "! (", op.schema().name(), ")");
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  const bool indexes = name.rfind("aten::index", 0) == 0 || name.rfind("aten::_index_put", 0) == 0;
  const auto& arguments = op.schema().arguments();
  const auto given = torch::jit::last(*stack, arguments.size());
  for (size_t place = 0; place < arguments.size(); ++place) {
    const auto& value = given[place];
    if (value.isTensor()) {
      refuse_elsewhere(op, value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& x : value.toTensorVector()) if (!indexes) refuse_elsewhere(op, x);
    } else if (value.isList() && !indexes) {
      for (const c10::IValue& x : value.toListRef()) if (x.isTensor()) refuse_elsewhere(op, x.toTensor());
    }
  }
  at::native::cpu_fallback(op, stack);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar);
  m.impl("histc", histc);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

static const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();
