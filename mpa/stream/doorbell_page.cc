// SPDX-License-Identifier: MIT
#include "mpa/stream/doorbell_page.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#include "mpa/descriptor.h"
#include "mpa/stream/sealed_memory.h"

namespace uiw::mpa {

namespace {
constexpr std::size_t kOctets = DoorbellPage::kWords * sizeof(DoorbellPage::Word);
constexpr SealedSize kSize = {kOctets, kOctets};
}  // namespace

DoorbellPage::DoorbellPage(Word* words) : words_(words), process_(::getpid()) {}

DoorbellPage::~DoorbellPage() {
  if (::getpid() == process_) ::munmap(words_, kOctets);
}

std::unique_ptr<DoorbellPage> DoorbellPage::map(int fd) {
  std::byte* const memory = map_sealed_memory(fd, kOctets);
  if (memory == nullptr) return nullptr;
  std::unique_ptr<DoorbellPage> made(new (std::nothrow) DoorbellPage(reinterpret_cast<Word*>(memory)));
  if (!made) ::munmap(memory, kOctets);
  return made;
}

std::unique_ptr<DoorbellPage> DoorbellPage::create(int& fd) {
  const int made = make_sealed_memory("uiw doorbells", "doorbells of shared memory", kSize);
  if (made < 0) return nullptr;
  auto page = map(made);
  if (page) {
    fd = made;
  } else {
    close_descriptor(made);
  }
  return page;
}

std::unique_ptr<DoorbellPage> DoorbellPage::attach(int fd) { return is_sealed_memory(fd, kSize) ? map(fd) : nullptr; }

}  // namespace uiw::mpa
