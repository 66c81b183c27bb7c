// SPDX-License-Identifier: MIT
// Look-ups, by which an rdma_cm id of port space UDP "connects": the caller asks the service's UDP port for a queue
// pair number and a Q_Key, and the service answers (lookup_format.h). There is no stream: a Call is one request, on
// either side. Observers are called on the thread "uiw-cm" (CmLoop).
//
// The caller repeats a request until it is answered, for a minute at most. The service answers a repeated request with
// the same answer and does not report the request again, unless it has forgotten the request (lookup_listener.cc). So
// the program of the service usually sees each request once.
#pragma once

#include <sys/socket.h>

#include <memory>

#include "provider/connect/call.h"
#include "provider/connect/listener.h"

namespace uiw::provider {

// Makes a UDP socket bound to `local`, close-on-exec and non-blocking, which reports the local address of each
// datagram. `local` and the result are as in bind_socket() of local_address.h. No other socket can bind this address.
int bind_lookup_socket(sockaddr_storage& local, bool v6only);

// Asks the service at `remote`: an address and, as its port, a number of port space UDP. If another socket has the UDP
// port of that number, the service has another UDP port (rdma_port.h). `socket` is from bind_lookup_socket(); the
// request owns it from here on, also after a failure. The observer's established() has the service's qp_num, qkey and
// private data; failed() has ECONNREFUSED with the private data of a rejection, ECONNREFUSED with nullptr if no process
// has the port, ETIMEDOUT if there is no answer, or another errno. Of `own` only the private data, at most
// kMostLookupData octets, is sent. `tos` is set as IP_TOS or IPV6_TCLASS unless it is negative. Thread-safe. 0 or an
// errno. Throws std::bad_alloc.
int look_up(int socket, const sockaddr_storage& remote, const CallParameters& own, int tos,
            std::weak_ptr<CallObserver> observer, std::shared_ptr<Call>& request);

// Reports each new request that comes to `socket`, which is from bind_lookup_socket() and which the listener owns from
// here on. Call::accept() answers a request with qp_num, qkey and private data of its argument, and no callback
// follows. Thread-safe. 0 or an errno. Throws std::bad_alloc.
int listen_for_lookups(int socket, std::weak_ptr<ListenObserver> observer, std::shared_ptr<Listener>& listener);

}  // namespace uiw::provider
