// SPDX-License-Identifier: MIT
// A queue pair of any type, as the plugin and the device's other objects use it. Qp is the type with a connection (RC,
// UC); DatagramQp the one without (UD). Thread-safe, except for destruction.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>

#include "provider/connect/numbered.h"
#include "provider/export.h"
#include "provider/inventory/inventory.h"
#include "provider/process/device.h"
#include "provider/verbs/qp_identity.h"
#include "provider/verbs/send_requests.h"

namespace uiw::provider {

class Context;
class Cq;
class Pd;
class Srq;

class QueuePair : public Numbered {
 public:
  ~QueuePair() override = default;
  // A queue pair of the type that `attributes` name; fills in the granted values. Null with errno: EINVAL for values
  // beyond the device's, EOPNOTSUPP for a type that it does not offer, ENOMEM, EMFILE. `handle` is the program's
  // ibv_qp, which events carry. With `srq` it has no receive queue of its own. Context, domain, queues and
  // `srq` must remain live as long as the queue pair.
  UIW_API static std::unique_ptr<QueuePair> create(Context& context, Pd& pd, Cq* send_cq, Cq* receive_cq,
                                                   ibv_qp_init_attr& attributes, ibv_qp* handle, Srq* srq);

  virtual QpIdentity& identity() = 0;
  virtual std::uint32_t number() const = 0;
  const Context& context() { return *identity().context; }
  bool completes_to(const Cq* cq) { return cq == &identity().send_cq || cq == &identity().receive_cq; }
  // The number of async events about this queue pair that were written to the context's pipe.
  unsigned events_reported() { return identity().events_reported.load(); }

  // The first half of destruction: from here on the queue pair is not found or driven, nothing is received into the
  // program's memory, and no event about it is reported. Work that is not complete gets no completion.
  virtual void stop() = 0;
  // True if a parent process created the queue pair; then it stays the parent's, and leave_to_parent() releases the
  // domain and the queues in place of destruction.
  virtual bool inherited() const = 0;
  virtual void leave_to_parent() = 0;

  // As the manual pages say: 0 or an errno, with the first bad request.
  virtual int modify(const ibv_qp_attr& attributes, int mask) = 0;
  virtual void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) = 0;
  virtual int post_receive(ibv_recv_wr* requests, ibv_recv_wr** bad) = 0;
  virtual SendRequests& posting() = 0;
  // ibv_attach_mcast and ibv_detach_mcast: 0 or an errno. Only queue pairs for datagrams do that.
  virtual int attach_group(const Gid&) { return EINVAL; }
  virtual int detach_group(const Gid&) { return EINVAL; }
  // Whether it is attached to a group; then it cannot be destroyed.
  virtual bool is_attached() const { return false; }
  int post_send(ibv_send_wr* requests, ibv_send_wr** bad) { return posting().post(requests, bad); }

  // Fills in what others may know of the queue pair, all but its number and device, and adds to `traffic` what its
  // connection has sent and received so far. Takes the sender's lock.
  virtual void show(ShownQp& shown, PortCounts& traffic) = 0;

  // A completion queue overran that this queue pair uses.
  virtual void completion_lost() = 0;
  // Its connection, if it has one, ends as if the network had lost it.
  virtual void lose_connection() {}
};

// Each that can be found now, one after the other, with its number.
void for_each_queue_pair(const std::function<void(std::uint32_t, QueuePair&)>& function);

}  // namespace uiw::provider
