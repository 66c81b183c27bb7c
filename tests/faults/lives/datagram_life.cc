// SPDX-License-Identifier: MIT
// Two queue pairs of type UD, one of which joins a multicast group.
#include <algorithm>

#include "tests/faults/lives/life.h"

namespace faults {
namespace {

constexpr std::uint32_t kQkey = 0x1234567;
constexpr std::size_t kGrh = 40, kRoom = 2048;
constexpr std::uint32_t kSize = 500;
constexpr std::uint64_t kSend = 1, kReceive = 2;

class DatagramLife : public Life {
 public:
  void make() override {
    rnic_ = std::make_unique<Rnic>();
    completions_ = Completions(rnic_->context());
    near_ = Region(rnic_->pd(), kRoom);
    far_ = Region(rnic_->pd(), kRoom);
    a_ = qp();
    b_ = qp();
    ibv_ah_attr attributes{};
    attributes.port_num = 1;
    attributes.is_global = 1;
    attributes.grh.dgid = rnic_->gid();
    attributes.grh.sgid_index = static_cast<std::uint8_t>(rnic_->gid_index());
    address_ = Owned<ibv_ah> FAULTS_OWN(ibv_create_ah, ibv_destroy_ah, rnic_->pd(), &attributes);
  }
  // A datagram may be lost, so it is sent until one comes.
  void talk() override {
    const auto end = Clock::now() + kPatience;
    std::fill(near_.octets.begin(), near_.octets.end(), ++number_);
    for (bool came = false; !came;) {
      if (Clock::now() > end) throw Trouble{"no datagram comes", ETIME};
      if (!posted_) post_receive(b_.get(), far_, kReceive);
      posted_ = true;
      send();
      ibv_wc wc{};
      for (bool sent = false; !sent || (!came && next(wc, std::chrono::milliseconds(200)));) {
        if (!sent && !next(wc, kPatience)) throw Trouble{"no completion of a Send", ETIME};
        if (wc.wr_id == kSend) sent = true;
        if (wc.wr_id == kReceive && std::exchange(posted_, false))
          came = std::count(far_.octets.begin() + kGrh, far_.octets.begin() + kGrh + kSize, number_) == kSize;
      }
    }
  }
  void end() override {
    const ibv_gid group{{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
    must_be_0(ibv_attach_mcast(b_.get(), &group, 0), "ibv_attach_mcast");
    give_back("ibv_detach_mcast", [&] { return ibv_detach_mcast(b_.get(), &group, 0); });
  }

 private:
  bool next(ibv_wc& wc, Clock::duration patience) {
    if (!completions_.next(wc, patience)) return false;
    if (wc.status != IBV_WC_SUCCESS) throw Trouble{std::string("completion: ") + ibv_wc_status_str(wc.status), 0};
    return true;
  }
  Owned<ibv_qp> qp() const {
    ibv_qp_init_attr wanted = queue_pair_attributes(completions_.cq());
    wanted.qp_type = IBV_QPT_UD;
    Owned<ibv_qp> made FAULTS_OWN(ibv_create_qp, ibv_destroy_qp, rnic_->pd(), &wanted);
    ibv_qp_attr attributes{};
    attributes.port_num = 1;
    attributes.qkey = kQkey;
    for (const auto& [state, mask] : {std::pair{IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
                                      std::pair{IBV_QPS_RTR, 0}, std::pair{IBV_QPS_RTS, int{IBV_QP_SQ_PSN}}}) {
      attributes.qp_state = state;
      must_be_0(ibv_modify_qp(made.get(), &attributes, mask | IBV_QP_STATE), "ibv_modify_qp");
    }
    return made;
  }
  void send() {
    ibv_sge sge = near_.sge(kSize);
    ibv_send_wr request{};
    request.wr_id = kSend;
    request.opcode = IBV_WR_SEND;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.wr.ud = {address_.get(), b_->qp_num, kQkey};
    ibv_send_wr* bad = nullptr;
    must_be_0(ibv_post_send(a_.get(), &request, &bad), "ibv_post_send");
  }

  std::unique_ptr<Rnic> rnic_;
  Completions completions_;
  Region near_, far_;
  Owned<ibv_qp> a_, b_;
  Owned<ibv_ah> address_;
  std::uint8_t number_ = 0;
  bool posted_ = false;
};

}  // namespace

std::unique_ptr<Life> new_datagram_life() { return std::make_unique<DatagramLife>(); }

}  // namespace faults
