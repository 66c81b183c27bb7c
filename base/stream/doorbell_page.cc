// SPDX-License-Identifier: MIT
#include "base/stream/doorbell_page.h"

#include <new>
#include <utility>

#include "base/descriptor.h"

namespace uiw {

namespace {
constexpr std::size_t kOctets = DoorbellPage::kWords * sizeof(DoorbellPage::Word);
constexpr SealedMemory::Size kSize = {kOctets, kOctets};
}  // namespace

std::unique_ptr<DoorbellPage> DoorbellPage::made_of(SealedMemory memory) {
  if (memory.data() == nullptr) return nullptr;
  return std::unique_ptr<DoorbellPage>(new (std::nothrow) DoorbellPage(std::move(memory)));
}

std::unique_ptr<DoorbellPage> DoorbellPage::create(int& fd) {
  auto page = made_of(SealedMemory::create("uiw doorbells", "doorbells of shared memory", kSize, fd));
  if (!page && fd >= 0) close_descriptor(std::exchange(fd, -1));
  return page;
}

std::unique_ptr<DoorbellPage> DoorbellPage::attach(int fd) { return made_of(SealedMemory::attach(fd, kSize)); }

}  // namespace uiw
