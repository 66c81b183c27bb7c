// SPDX-License-Identifier: MIT
// Parent domains with the program's allocators (ibv_alloc_parent_domain(3)).
#include <map>

#include "provider/include/infiniband/uiwdv.h"
#include "tests/apps/memory/memory.h"

namespace apps::memory {

namespace {

// What a program's allocator was asked for, and what it has out.
struct Store {
  enum class Answer { memory, nothing, use_heap };
  Answer answer = Answer::memory;
  ibv_pd* domain = nullptr;
  std::map<void*, std::size_t> out;
  std::size_t asked = 0, freed = 0;
};

void* store_alloc(ibv_pd* pd, void* context, std::size_t size, std::size_t alignment, std::uint64_t type) {
  Store& store = *static_cast<Store*>(context);
  expect(pd == store.domain, "alloc is called with another domain");
  expect(type == UIWDV_RES_TYPE_CQ, "alloc is called for another kind of resource");
  ++store.asked;
  if (store.answer == Store::Answer::nothing) return nullptr;
  if (store.answer == Store::Answer::use_heap) return IBV_ALLOCATOR_USE_DEFAULT;
  void* memory = nullptr;
  expect(posix_memalign(&memory, alignment, size) == 0, "posix_memalign");
  std::memset(memory, 0, size);
  store.out[memory] = size;
  return memory;
}

void store_free(ibv_pd* pd, void* context, void* memory, std::uint64_t type) {
  Store& store = *static_cast<Store*>(context);
  expect(pd == store.domain && type == UIWDV_RES_TYPE_CQ, "free is called with something else than alloc");
  expect(store.out.erase(memory) == 1, "free is called for memory that alloc has not returned");
  std::free(memory);
  ++store.freed;
}

ibv_pd* parent_domain(ibv_pd* pd, Store& store) {
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = pd;
  attributes.alloc = store_alloc;
  attributes.free = store_free;
  attributes.pd_context = &store;
  attributes.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  store.domain = made("ibv_alloc_parent_domain", ibv_alloc_parent_domain(pd->context, &attributes));
  return store.domain;
}

ibv_cq* queue(ibv_pd* parent, std::uint32_t entries, std::uint64_t fields = 0) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = entries;
  attributes.wc_flags = fields;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attributes.parent_domain = parent;
  ibv_cq_ex* cq = ibv_create_cq_ex(parent->context, &attributes);
  return cq == nullptr ? nullptr : ibv_cq_ex_to_cq(cq);
}

// Receives that are flushed complete to the queue: their completions are in the program's memory.
void flush_to(ibv_pd* parent, ibv_cq* cq, const Store& store, std::uint64_t count) {
  ibv_qp_init_attr attributes = qp_attributes({});
  attributes.send_cq = attributes.recv_cq = cq;
  ibv_qp* qp = made("ibv_create_qp", ibv_create_qp(parent, &attributes));
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_INIT;
  change.port_num = 1;
  expect_error("ibv_modify_qp",
               ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
  for (std::uint64_t id = 0; id < count; ++id) post_receive(qp, {}, 0x5a5a5a00 + id);
  change.qp_state = IBV_QPS_ERR;
  expect_error("ibv_modify_qp", ibv_modify_qp(qp, &change, IBV_QP_STATE), 0);
  bool seen = store.out.empty();
  for (const auto& [memory, size] : store.out) {
    for (std::size_t at = 0; at + sizeof(std::uint64_t) <= size; at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, static_cast<const char*>(memory) + at, sizeof word);
      seen = seen || word == 0x5a5a5a00;
    }
  }
  expect(seen, "the completions are not in the memory of the program");
  for (std::uint64_t id = 0; id < count; ++id) {
    ibv_wc wc{};
    expect(Endpoint::completion(cq, nullptr, false, wc), "a receive that was flushed");
    expect(wc.wr_id == 0x5a5a5a00 + id && wc.status == IBV_WC_WR_FLUSH_ERR, "its completion");
  }
  expect_error("ibv_destroy_qp", ibv_destroy_qp(qp), 0);
}

void allocators() {
  Pair pair;
  Store store;
  ibv_pd* const parent = parent_domain(pair.near.pd(), store);
  ibv_cq* const cq = queue(parent, 16);
  expect(cq != nullptr && store.asked == 1 && store.out.size() == 1, "one piece of memory for one queue");
  expect(store.out.begin()->second >= 16 * sizeof(ibv_wc), "room for all completions");
  flush_to(parent, cq, store, 16);
  const void* const first = store.out.begin()->first;
  expect_error("ibv_resize_cq", ibv_resize_cq(cq, 64), 0);
  expect(store.out.size() == 1 && store.out.begin()->first != first && store.freed == 1, "other memory after a resize");
  flush_to(parent, cq, store, 60);
  store.answer = Store::Answer::nothing;
  expect_error("ibv_resize_cq without memory", ibv_resize_cq(cq, 256), ENOMEM);
  flush_to(parent, cq, store, 60);
  expect_error("ibv_dealloc_pd with a queue left", ibv_dealloc_pd(parent), EBUSY);
  expect_error("ibv_destroy_cq", ibv_destroy_cq(cq), 0);
  expect(store.out.empty() && store.freed == 2, "memory that was not given back");
  expect_error("a queue without memory", error_of(queue(parent, 16)), ENOMEM);
  expect(store.out.empty(), "memory for a queue that was not made");
  expect_error("ibv_dealloc_pd", ibv_dealloc_pd(parent), 0);
}

void allocators_time_stamps() {
  Pair pair;
  Store store;
  ibv_pd* const parent = parent_domain(pair.near.pd(), store);
  ibv_cq* const cq = queue(parent, 16, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  expect(cq != nullptr && store.out.size() == 2, "memory for completions and for their time stamps");
  flush_to(parent, cq, store, 10);
  expect_error("ibv_destroy_cq", ibv_destroy_cq(cq), 0);
  expect(store.out.empty(), "memory that was not given back");
  expect_error("ibv_dealloc_pd", ibv_dealloc_pd(parent), 0);
}

void allocators_use_default() {
  Pair pair;
  Store store;
  store.answer = Store::Answer::use_heap;
  ibv_pd* const parent = parent_domain(pair.near.pd(), store);
  ibv_cq* const cq = queue(parent, 16);
  expect(cq != nullptr && store.asked == 1, "alloc is asked first");
  flush_to(parent, cq, store, 16);
  expect_error("ibv_destroy_cq", ibv_destroy_cq(cq), 0);
  expect(store.freed == 0, "free is called for memory of the heap");
  expect_error("ibv_dealloc_pd", ibv_dealloc_pd(parent), 0);
}

}  // namespace

void allocator_cases(Cases& cases) {
  cases.insert({
      {"allocators", allocators},
      {"allocators_time_stamps", allocators_time_stamps},
      {"allocators_use_default", allocators_use_default},
  });
}

}  // namespace apps::memory
