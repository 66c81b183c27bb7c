// SPDX-License-Identifier: MIT
#include "provider/plugin/ops/cq.h"

#include "provider/include/infiniband/uiwdv.h"
#include "provider/plugin/objects.h"
#include "provider/process/limits.h"

namespace uiw::plugin {

namespace {

// ---- Extended polling: the completion that the program looks at is a copy --------------------------------------

void show(Cq* cq) {
  cq->ex.wr_id = cq->current.wr_id;
  cq->ex.status = cq->current.status;
}

void end_poll(ibv_cq_ex* cq) { of(cq)->rnic->end_poll(); }

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return of(cq)->current.opcode; }
std::uint32_t read_vendor_err(ibv_cq_ex* cq) { return of(cq)->current.vendor_err; }
std::uint32_t read_byte_len(ibv_cq_ex* cq) { return of(cq)->current.byte_len; }
// ibv_wc_read_invalidated_rkey() calls this, too.
__be32 read_imm_data(ibv_cq_ex* cq) { return of(cq)->current.imm_data; }
std::uint32_t read_qp_num(ibv_cq_ex* cq) { return of(cq)->current.qp_num; }
std::uint32_t read_src_qp(ibv_cq_ex* cq) { return of(cq)->current.src_qp; }
unsigned int read_wc_flags(ibv_cq_ex* cq) { return of(cq)->current.wc_flags; }
std::uint32_t read_slid(ibv_cq_ex* cq) { return of(cq)->current.slid; }
std::uint8_t read_sl(ibv_cq_ex* cq) { return of(cq)->current.sl; }
std::uint8_t read_dlid_path_bits(ibv_cq_ex* cq) { return of(cq)->current.dlid_path_bits; }
std::uint64_t read_completion_ts(ibv_cq_ex* cq) { return of(cq)->stamp.raw; }
std::uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) { return of(cq)->stamp.wall_ns; }

void offer_reads(ibv_cq_ex& cq, const rnic::Cq::Options& options) {
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  cq.read_wc_flags = read_wc_flags;
  // The program may call the following functions, whether it has requested the fields or not.
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_slid = read_slid;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_dlid_path_bits;
  if (options.raw_time) cq.read_completion_ts = read_completion_ts;
  if (options.wall_time) cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
}

// The allocators that the program has set in this parent domain, for completion queues; the default ones if there are
// none.
rnic::ProgramAllocator allocator_of(Pd& parent) {
  if ((parent.functions.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) == 0) return {};
  return {[](void* owner, std::size_t size, std::size_t alignment) {
            Pd& pd = *static_cast<Pd*>(owner);
            return pd.functions.alloc(&pd.base, pd.functions.pd_context, size, alignment, UIWDV_RES_TYPE_CQ);
          },
          [](void* owner, void* memory) {
            Pd& pd = *static_cast<Pd*>(owner);
            pd.functions.free(&pd.base, pd.functions.pd_context, memory, UIWDV_RES_TYPE_CQ);
          },
          &parent};
}

Cq* make_cq(ibv_context* context, int entries, ibv_comp_channel* channel, const rnic::Cq::Options& options) {
  return without_exceptions([&]() -> Cq* {
    auto cq = std::make_unique<Cq>();
    cq->share = {context_of(context)->rnic, rnic::Limited::cq};
    if (!cq->share) return nullptr;
    cq->rnic = rnic::Cq::create(*context_of(context)->rnic, entries, channel != nullptr ? channel->fd : -1, &cq->base,
                                options);
    if (!cq->rnic) return nullptr;
    cq->base.cqe = cq->rnic->entries();
    return cq.release();
  });
}

// A vector below 0 is a large one here.
bool has_vector(const ibv_context& context, std::uint32_t vector) {
  return vector < static_cast<std::uint32_t>(context.num_comp_vectors);
}

}  // namespace

int start_poll(ibv_cq_ex* handle, ibv_poll_cq_attr* attributes) {
  if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
  Cq* cq = of(handle);
  if (!cq->rnic->begin_poll(cq->current, cq->stamp)) return ENOENT;
  show(cq);
  return 0;
}

int next_poll(ibv_cq_ex* handle) {
  Cq* cq = of(handle);
  if (!cq->rnic->next_poll(cq->current, cq->stamp)) return ENOENT;
  show(cq);
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int entries, ibv_comp_channel* channel, int vector) {
  if (!has_vector(*context, static_cast<std::uint32_t>(vector))) {
    errno = EINVAL;
    return nullptr;
  }
  Cq* cq = make_cq(context, entries, channel, {});
  return cq != nullptr ? &cq->base : nullptr;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  constexpr std::uint64_t kFields = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  constexpr std::uint32_t kMasks = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr std::uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  const std::uint32_t flags = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? attributes->flags : 0;
  if ((attributes->wc_flags & ~kFields) != 0 || (attributes->comp_mask & ~kMasks) != 0 || (flags & ~kFlags) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  Pd* parent = nullptr;
  if ((attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
    if (attributes->parent_domain != nullptr) parent = of(attributes->parent_domain);
    if (parent == nullptr || parent->own) {  // not a parent domain, or null
      errno = EINVAL;
      return nullptr;
    }
  }
  if (!has_vector(*context, attributes->comp_vector) || attributes->cqe > static_cast<std::uint32_t>(rnic::kMaxCqe)) {
    errno = EINVAL;
    return nullptr;
  }
  rnic::Cq::Options options;
  options.single_threaded =
      (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0 || (parent != nullptr && parent->td != nullptr);
  if (parent != nullptr) options.memory = allocator_of(*parent);
  options.ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0;
  options.raw_time = (attributes->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0;
  options.wall_time = (attributes->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0;
  Cq* cq = make_cq(context, static_cast<int>(attributes->cqe), attributes->channel, options);
  if (cq == nullptr) return nullptr;
  cq->parent = parent;
  if (parent != nullptr) parent->use();
  offer_reads(cq->ex, options);
  return &cq->ex;
}

int resize_cq(ibv_cq* cq, int entries) {
  const int error = errno_of([&] { return of(cq)->rnic->resize(entries); });
  if (error == 0) cq->cqe = of(cq)->rnic->entries();
  return error;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attributes) {
  if (attributes->attr_mask == 0) return with_errno(EINVAL);
  if ((attributes->attr_mask & ~static_cast<std::uint32_t>(IBV_CQ_ATTR_MODERATE)) != 0) {
    return with_errno(EOPNOTSUPP);
  }
  const auto& moderate = attributes->moderate;
  return errno_of([&] { return of(cq)->rnic->moderate(moderate.cq_count, moderate.cq_period); });
}

int destroy_cq(ibv_cq* cq) {
  Cq* self = of(cq);
  unsigned events = 0;
  if (const int error = self->rnic->prepare_destroy(events); error != 0) return with_errno(error);
  const unsigned reported = self->rnic->async_events_reported();
  await_acknowledgements(cq, cq->comp_events_completed, events);
  await_acknowledgements(cq, cq->async_events_completed, context_of(cq->context)->rnic->withdraw_events(cq, reported));
  if (self->rnic->inherited()) static_cast<void>(self->rnic.release());
  Pd* const parent = self->parent;
  delete self;
  if (parent != nullptr) parent->leave();
  return 0;
}

int poll_cq(ibv_cq* cq, int count, ibv_wc* completions) { return of(cq)->rnic->poll(count, completions); }

int req_notify_cq(ibv_cq* cq, int solicited_only) { return of(cq)->rnic->request_notify(solicited_only != 0); }

}  // namespace uiw::plugin
