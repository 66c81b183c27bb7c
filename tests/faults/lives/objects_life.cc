// SPDX-License-Identifier: MIT
// Objects of every kind, made, asked and changed, without a connection.
#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "tests/faults/lives/life.h"

namespace faults {
namespace {

constexpr std::size_t kRoom = 65'536;

class ObjectsLife : public Life {
 public:
  void make() override {
    rnic_ = std::make_unique<Rnic>();
    completions_ = Completions(rnic_->context());
    region_ = Region(rnic_->pd(), kRoom);
    ibv_srq_init_attr shared{};
    shared.attr = {16, 2, 0};
    srq_ = Owned<ibv_srq> FAULTS_OWN(ibv_create_srq, ibv_destroy_srq, rnic_->pd(), &shared);
    ibv_qp_init_attr attributes = queue_pair_attributes(completions_.cq(), srq_.get());
    qp_ = Owned<ibv_qp> FAULTS_OWN(ibv_create_qp, ibv_destroy_qp, rnic_->pd(), &attributes);
  }
  void talk() override {
    ask();
    change();
    memory();
    flush();
  }
  void end() override {}

 private:
  void ask() {
    ibv_device_attr_ex device{};
    must_be_0(ibv_query_device_ex(rnic_->context(), nullptr, &device), "ibv_query_device_ex");
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    must_be_0(ibv_query_qp(qp_.get(), &attributes, IBV_QP_STATE | IBV_QP_CAP, &initial), "ibv_query_qp");
    ibv_srq_attr shared{};
    must_be_0(ibv_query_srq(srq_.get(), &shared), "ibv_query_srq");
    std::array<ibv_gid_entry, 16> gids{};
    must(ibv_query_gid_table(rnic_->context(), gids.data(), gids.size(), 0) > 0, "ibv_query_gid_table");
    ibv_gid_entry gid{};
    must_be_0(ibv_query_gid_ex(rnic_->context(), 1, 0, &gid, 0), "ibv_query_gid_ex");
    __be16 pkey = 0;
    must(ibv_query_pkey(rnic_->context(), 1, 0, &pkey) == 0, "ibv_query_pkey");
  }
  void change() {
    must_be_0(ibv_resize_cq(completions_.cq(), 500), "ibv_resize_cq");
    ibv_srq_attr shared{};
    shared.max_wr = 500;
    must_be_0(ibv_modify_srq(srq_.get(), &shared, IBV_SRQ_MAX_WR), "ibv_modify_srq");
    shared.srq_limit = 3;
    must_be_0(ibv_modify_srq(srq_.get(), &shared, IBV_SRQ_LIMIT), "ibv_modify_srq limit");
  }
  void memory() {
    ibv_alloc_dm_attr wanted{};
    wanted.length = 8192;
    const Owned<ibv_dm> device FAULTS_OWN(ibv_alloc_dm, ibv_free_dm, rnic_->context(), &wanted);
    const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
    const Owned<ibv_mr> mr{ibv_reg_dm_mr(rnic_->pd(), device.get(), 0, 8192, rights), "ibv_reg_dm_mr", ibv_dereg_mr,
                           "ibv_dereg_mr"};
    const Owned<ibv_mw> window FAULTS_OWN(ibv_alloc_mw, ibv_dealloc_mw, rnic_->pd(), IBV_MW_TYPE_1);
    const Owned<ibv_mr> null FAULTS_OWN(ibv_alloc_null_mr, ibv_dereg_mr, rnic_->pd());
    Region second(rnic_->pd(), kRoom);
    // A failure leaves the region as it was, or without memory; in either case it can be deregistered.
    must(ibv_rereg_mr(second.mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, region_.octets.data(), kRoom, 0) == 0,
         "ibv_rereg_mr");
    ibv_td_init_attr thread{};
    const Owned<ibv_td> td FAULTS_OWN(ibv_alloc_td, ibv_dealloc_td, rnic_->context(), &thread);
    ibv_parent_domain_init_attr parent{};
    parent.pd = rnic_->pd();
    parent.td = td.get();
    const Owned<ibv_pd> domain FAULTS_OWN(ibv_alloc_parent_domain, ibv_dealloc_pd, rnic_->context(), &parent);
    const Region third(domain.get(), 4096);
    import();
  }
  // The device once more, by a descriptor.
  void import() {
    const int fd = ::fcntl(rnic_->context()->cmd_fd, F_DUPFD_CLOEXEC, 0);
    must(fd >= 0, "fcntl");
    ibv_context* const imported = ibv_import_device(fd);
    if (imported == nullptr) {
      const int error = errno;
      ::close(fd);
      throw Trouble{"ibv_import_device", error};
    }
    const Owned<ibv_context> second{imported, "ibv_import_device", ibv_close_device, "ibv_close_device"};
    ibv_pd* const same = ibv_import_pd(second.get(), rnic_->pd()->handle);
    must(same != nullptr, "ibv_import_pd");
    ibv_unimport_pd(same);
  }
  void flush() {
    for (std::uint64_t id = 0; id < 10; ++id) {
      ibv_sge sge = region_.sge(100);
      ibv_recv_wr request{id, nullptr, &sge, 1}, *bad = nullptr;
      must_be_0(ibv_post_srq_recv(srq_.get(), &request, &bad), "ibv_post_srq_recv");
    }
  }

  std::unique_ptr<Rnic> rnic_;
  Completions completions_;
  Region region_;
  Owned<ibv_srq> srq_;
  Owned<ibv_qp> qp_;
};

}  // namespace

std::unique_ptr<Life> new_objects_life() { return std::make_unique<ObjectsLife>(); }

}  // namespace faults
