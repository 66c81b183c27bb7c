// SPDX-License-Identifier: MIT
// Two queue pairs that the program connects with ibv_modify_qp.
#include <fcntl.h>

#include "tests/faults/lives/life.h"

namespace faults {
namespace {

constexpr std::size_t kRoom = 65'536;

void modify(ibv_qp* qp, ibv_qp_attr attributes, int mask, const char* what) {
  must_be_0(ibv_modify_qp(qp, &attributes, mask), what);
}

class ManualLife : public Life {
 public:
  void make() override {
    rnic_ = std::make_unique<Rnic>();
    completions_ = Completions(rnic_->context());
    near_ = Region(rnic_->pd(), kRoom);
    far_ = Region(rnic_->pd(), kRoom);
    ibv_srq_init_attr shared{};
    shared.attr = {16, 2, 0};
    for (Owned<ibv_qp>* qp : {&a_, &b_}) {
      ibv_qp_init_attr attributes = queue_pair_attributes(completions_.cq());
      *qp = Owned<ibv_qp> FAULTS_OWN(ibv_create_qp, ibv_destroy_qp, rnic_->pd(), &attributes);
      to_init(qp->get());
    }
    to_rtr(a_.get(), b_->qp_num);
    to_rtr(b_.get(), a_->qp_num);
    to_rts(a_.get());
    to_rts(b_.get());
  }
  void talk() override { exchange(a_.get(), b_.get(), completions_, near_, far_); }
  void end() override {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    modify(a_.get(), attributes, IBV_QP_STATE, "ibv_modify_qp to ERR");
    attributes.qp_state = IBV_QPS_RESET;
    modify(b_.get(), attributes, IBV_QP_STATE, "ibv_modify_qp to RESET");
  }

 private:
  static void to_init(ibv_qp* qp) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    modify(qp, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
           "ibv_modify_qp to INIT");
  }
  void to_rtr(ibv_qp* qp, std::uint32_t peer) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = peer;
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = rnic_->gid();
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(rnic_->gid_index());
    attributes.ah_attr.grh.hop_limit = 64;
    modify(qp, attributes,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
               IBV_QP_MIN_RNR_TIMER,
           "ibv_modify_qp to RTR");
  }
  static void to_rts(ibv_qp* qp) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = 1;
    attributes.rnr_retry = 1;
    attributes.max_rd_atomic = 4;
    modify(
        qp, attributes,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
        "ibv_modify_qp to RTS");
  }

  std::unique_ptr<Rnic> rnic_;
  Completions completions_;
  Region near_, far_;
  Owned<ibv_qp> a_, b_;
};

}  // namespace

std::unique_ptr<Life> new_manual_life() { return std::make_unique<ManualLife>(); }

}  // namespace faults
