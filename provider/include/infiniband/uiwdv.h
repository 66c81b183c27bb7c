/* SPDX-License-Identifier: MIT */
/*
 * What uiw's devices do beyond ibverbs: the masked atomic operations and the 8-octet Immediate Data of RFC 7306,
 * and what was agreed on for a connection. See uiwdv(7).
 *
 * Functions that return int return 0 or an errno, and do not set errno. Objects of other devices are refused with
 * EOPNOTSUPP and are not touched. Each function is as thread-safe as the ibverbs call that it is used with.
 */
#ifndef INFINIBAND_UIWDV_H
#define INFINIBAND_UIWDV_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Octets of an Immediate Data message. uiw does not change their order. */
#define UIWDV_IMM_SIZE 8

/* Whether the functions here support this device's objects. */
bool uiwdv_is_supported(struct ibv_device* device);

enum uiwdv_device_caps {
  UIWDV_CAP_MASKED_FETCH_ADD = 1 << 0,
  UIWDV_CAP_MASKED_CMP_SWAP = 1 << 1,
  UIWDV_CAP_IMM8 = 1 << 2,
  UIWDV_CAP_SEND_WITH_IMM = 1 << 3 /* IBV_WR_SEND_WITH_IMM, to peers that have it too */
};

/* Later versions add members at the end. */
struct uiwdv_device_attr {
  uint32_t version_major; /* of the library that runs */
  uint32_t version_minor;
  uint32_t version_patch;
  uint32_t caps;        /* of enum uiwdv_device_caps */
  uint32_t atomic_size; /* octets an atomic operation works on, and is aligned to */
  uint32_t imm_size;    /* UIWDV_IMM_SIZE */
  char netdev[16];      /* name of the network interface, ended by a zero octet */
};

/*
 * `size` is sizeof *attr. Members that the library does not know are set to zero. EINVAL if `size` has room for no
 * member.
 */
int uiwdv_query_device(struct ibv_context* context, struct uiwdv_device_attr* attr, size_t size);

enum uiwdv_qp_flags {
  UIWDV_QP_CRC = 1 << 0,          /* FPDUs carry a CRC32c */
  UIWDV_QP_INITIATOR = 1 << 1,    /* this end initiated the connection */
  UIWDV_QP_SEND_WITH_IMM = 1 << 2 /* IBV_WR_SEND_WITH_IMM may be posted; else it is refused with EOPNOTSUPP */
};

/* What the two ends of a connection have agreed on. */
struct uiwdv_qp_attr {
  uint32_t flags;        /* of enum uiwdv_qp_flags */
  uint32_t mpa_revision; /* 1 or 2 */
  uint32_t ord;          /* reads and atomic operations that may be outstanding, from this end */
  uint32_t ird;          /* reads and atomic operations that may be outstanding, from the peer */
  uint32_t mulpdu;       /* octets, headers included, of the largest DDP segment sent */
};

/* `size` is used as by uiwdv_query_device(). ENOTCONN for a queue pair that has had no connection since RESET. */
int uiwdv_query_qp(struct ibv_qp* qp, struct uiwdv_qp_attr* attr, size_t size);

/*
 * The next three functions are called between ibv_wr_start() and ibv_wr_complete(), like ibv_wr_*(): wr_id and
 * wr_flags are those of the queue pair at that moment. All numbers are in host byte order. EINVAL for a queue pair
 * that was created without send operations; then, as with EOPNOTSUPP, the batch is unchanged.
 *
 * The two atomic operations are followed by ibv_wr_set_sge() or ibv_wr_set_sge_list() for the 8 octets that receive
 * the original value. The remote address must be aligned to 8 octets, and its memory region have
 * IBV_ACCESS_REMOTE_ATOMIC.
 */

/*
 * Adds the fields of two numbers, each field separately: a bit of `boundary_mask` marks the highest bit of a field,
 * whose carry is dropped. A mask of zero means one field of 64 bits.
 */
int uiwdv_wr_masked_fetch_add(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t add,
                              uint64_t boundary_mask);

/*
 * If the bits of `compare_mask` are as in `compare`, replaces the bits of `swap_mask` by those of `swap`; the other
 * bits stay.
 */
int uiwdv_wr_masked_cmp_swap(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
                             uint64_t compare_mask, uint64_t swap, uint64_t swap_mask);

/*
 * An Immediate Data message without an RDMA Write. It consumes a receive of the peer, which completes with opcode
 * IBV_WC_RECV_RDMA_WITH_IMM, flag IBV_WC_WITH_IMM and byte_len 0. The request takes no data: if ibv_wr_set_sge() or a
 * similar function follows, the batch fails with EINVAL.
 */
int uiwdv_wr_imm8(struct ibv_qp_ex* qp, const uint8_t imm[UIWDV_IMM_SIZE]);

/*
 * Stores all octets of the Immediate Data of a completion that ibv_poll_cq() took from `cq`; wc->imm_data has only the
 * first four. A Send with immediate carries only these four; then the others are zero.
 * EINVAL for a completion that is in error or has no IBV_WC_WITH_IMM.
 */
int uiwdv_wc_imm8(struct ibv_cq* cq, const struct ibv_wc* wc, uint8_t imm[UIWDV_IMM_SIZE]);

/*
 * As uiwdv_wc_imm8(), for the completion to which ibv_start_poll() or ibv_next_poll() has moved. The queue has to be
 * created with IBV_WC_EX_WITH_IMM and IBV_WC_EX_WITH_SRC_QP; otherwise this function may return EINVAL.
 */
int uiwdv_wc_read_imm8(struct ibv_cq_ex* cq, uint8_t imm[UIWDV_IMM_SIZE]);

/*
 * The resource_type for the allocators of a parent domain (ibv_alloc_parent_domain()): the entries of a completion
 * queue that ibv_create_cq_ex() makes in this domain. The library allocates all other memory by itself.
 */
enum uiwdv_res_type { UIWDV_RES_TYPE_CQ = 1 };

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_UIWDV_H */
