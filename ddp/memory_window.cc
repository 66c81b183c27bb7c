// SPDX-License-Identifier: MIT
// Memory windows: STags that work requests bind to a part of a region. A work request, or the peer's Send with
// Invalidate, ends such a binding again (Verbs draft sections 7.8 and 7.10).
#include "base/mutex.h"
#include "base/short_wait.h"
#include "ddp/stag_table.h"

namespace uiw::ddp {

namespace {

constexpr std::uint32_t kChanges = kRemoteWrite | kRemoteAtomic;

constexpr std::uint32_t index_of(Stag stag) { return static_cast<std::uint32_t>(stag) >> 8; }

}  // namespace

// Ends the binding of the window, if there is one, and waits until no access through it is in progress; each access
// lasts no longer than the copy of one segment.
void StagTable::unbind(Slot& window, const void* domain) {
  if (window.word.load(std::memory_order_relaxed) == 0) return;
  window.word.store(0, std::memory_order_seq_cst);
  for (ShortWait wait; window.holders.load(std::memory_order_seq_cst) != 0;) wait.turn();
  --slot_at(window.link).link;
  window.regions[0] = {};
  window.regions[0].domain = domain;
}

// Makes the checks of Verbs draft section 7.10.6.1, in the order of its table, then binds the window.
WindowError StagTable::bind(const Binding& binding, const void* domain, const void* stream) {
  const LockGuard lock(mutex_);
  Slot* window = slot(binding.window);
  const Use use = binding.type == WindowType::type1 ? Use::window1 : Use::window2;
  if (window == nullptr || window->use == Use::none) return WindowError::deallocated;
  if (window->use != use) return WindowError::no_window;
  if (use == Use::window2 && window->word.load(std::memory_order_relaxed) != 0) return WindowError::not_invalid;
  if (window->regions[0].domain != domain) return WindowError::not_associated;
  if (use == Use::window1 && binding.length == 0) {  // length 0 ends the binding (manual page of ibv_alloc_mw)
    unbind(*window, domain);
    return WindowError::none;
  }

  Slot* target = slot(binding.region);
  if (!is(target, name_of_region(binding.region))) return WindowError::no_region;
  const Region& region = target->region();
  if (region.domain != domain) return WindowError::not_associated;
  if ((region.rights & kBindWindows) == 0) return WindowError::not_bindable;
  if ((region.rights & kZeroBased) != 0) return WindowError::zero_based;
  // Verbs draft figure 20 also refuses a window without rights. Like rxe and mlx5, this function binds such a window,
  // and no access through it is allowed.
  if ((binding.rights & kChanges) != 0 && (region.rights & kLocalWrite) == 0) return WindowError::rights;
  std::uint64_t end;
  if (binding.length == 0 || __builtin_add_overflow(binding.offset, binding.length, &end) ||
      binding.offset < region.base || end > region.base + region.length) {
    return WindowError::bounds;
  }

  unbind(*window, domain);
  const auto address = reinterpret_cast<std::uintptr_t>(region.memory) + (binding.offset - region.base);
  Region& bound = window->regions[0];
  bound.memory = reinterpret_cast<std::byte*>(address);
  bound.base = binding.zero_based ? 0 : binding.offset;
  bound.length = binding.length;
  bound.rights = binding.rights & (kRemoteRead | kChanges);
  bound.domain = use == Use::window2 ? stream : domain;
  window->link = gather(index_of(binding.region));
  ++target->link;
  window->word.store(next_registration(*window) | name_of_window(binding.window), std::memory_order_seq_cst);
  return WindowError::none;
}

// Verbs draft sections 7.8 and 7.10.6.3. Unlike in the draft, a work request does not invalidate a region here:
// libibverbs has no Fast-Register, which would make the region valid again.
WindowError StagTable::invalidate(Stag stag, const void* domain, const void* stream) {
  const LockGuard lock(mutex_);
  Slot* found = slot(stag);
  if (found == nullptr || found->use == Use::none) return WindowError::deallocated;
  if (found->use == Use::region) {
    if (!is(found, name_of_region(stag))) return WindowError::deallocated;
    if (found->region().domain != domain) return WindowError::not_associated;
    return found->link > 0 ? WindowError::windows_bound : WindowError::no_window;
  }
  if (found->use == Use::window1) return WindowError::no_window;
  if (found->word.load(std::memory_order_relaxed) == 0) {  // in the Invalid state the key is not checked
    return found->regions[0].domain == domain ? WindowError::none : WindowError::not_associated;
  }
  if (!is(found, name_of_window(stag))) return WindowError::deallocated;
  if (found->regions[0].domain != stream) return WindowError::not_associated;
  unbind(*found, domain);
  return WindowError::none;
}

void StagTable::remove_window(Stag stag) {
  const LockGuard lock(mutex_);
  Slot* found = slot(stag);
  if (found == nullptr || (found->use != Use::window1 && found->use != Use::window2)) return;
  unbind(*found, nullptr);
  found->use = Use::none;
  free_.push_back(gather(index_of(stag)));
}

void StagTable::forget_holders() {
  for (std::uint32_t dense = 0; dense < used_; ++dense) {
    if (slot_at(dense).holders.load(std::memory_order_relaxed) != 0) slot_at(dense).holders.store(0);
  }
}

void StagTable::release_stream(const void* domain, const void* stream) {
  const LockGuard lock(mutex_);
  for (std::uint32_t dense = 0; dense < used_; ++dense) {
    Slot& found = slot_at(dense);
    if (found.use == Use::window2 && found.regions[0].domain == stream) unbind(found, domain);
  }
}

}  // namespace uiw::ddp
