/* SPDX-License-Identifier: MIT */
/* uiwdv.h in C99 and, compiled so, in C++: every function can be called. Lists the devices that it takes. */
#include <infiniband/uiwdv.h>
#include <stdio.h>
#include <string.h>

/* Never called without a queue pair: it has to compile and to link. */
static int post(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  static const uint8_t imm[UIWDV_IMM_SIZE] = {1, 2, 3, 4, 5, 6, 7, 8};
  int error = uiwdv_wr_masked_fetch_add(qp, rkey, address, 1, (uint64_t)1 << 63);

  if (!error) error = uiwdv_wr_masked_cmp_swap(qp, rkey, address, 0, ~(uint64_t)0, 1, ~(uint64_t)0);
  if (!error) error = uiwdv_wr_imm8(qp, imm);
  return error;
}

static int look(struct ibv_cq* cq, struct ibv_cq_ex* cq_ex, struct ibv_qp* qp) {
  struct uiwdv_qp_attr attr;
  struct ibv_wc wc;
  uint8_t imm[UIWDV_IMM_SIZE];

  memset(&wc, 0, sizeof(wc));
  if (uiwdv_query_qp(qp, &attr, sizeof(attr))) return 1;
  return cq ? uiwdv_wc_imm8(cq, &wc, imm) : uiwdv_wc_read_imm8(cq_ex, imm);
}

int main(int argc, char** argv) {
  int count = 0, i;
  struct ibv_device** list = ibv_get_device_list(&count);

  (void)argv;
  if (!list) {
    perror("ibv_get_device_list");
    return 1;
  }
  if (argc > 100) return post(NULL, 0, 0) + look(NULL, NULL, NULL);
  for (i = 0; i < count; i++) {
    struct uiwdv_device_attr attr;
    struct ibv_context* context;
    int error;

    if (!uiwdv_is_supported(list[i])) continue;
    context = ibv_open_device(list[i]);
    if (!context) {
      perror("ibv_open_device");
      return 1;
    }
    error = uiwdv_query_device(context, &attr, sizeof(attr));
    if (error) {
      fprintf(stderr, "uiwdv_query_device: %s\n", strerror(error));
      return 1;
    }
    printf("%s: uiw %u.%u.%u, interface %s, capabilities 0x%x\n", ibv_get_device_name(list[i]), attr.version_major,
           attr.version_minor, attr.version_patch, attr.netdev, attr.caps);
    ibv_close_device(context);
  }
  ibv_free_device_list(list);
  return 0;
}
