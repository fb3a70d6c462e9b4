/* A tool as NVTX loads it: prints the ranges it hears of. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* e) {
  (void)domain;
  fprintf(stderr, "+%s\n", e->message.ascii);
  return 0;
}
static int pop(nvtxDomainHandle_t domain) {
  (void)domain;
  fprintf(stderr, "-\n");
  return 0;
}
static nvtxDomainHandle_t create(const char* name) {
  fprintf(stderr, "domain %s\n", name);
  return (nvtxDomainHandle_t)1;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks* callbacks = (const NvtxExportTableCallbacks*)get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = 0;
  unsigned int size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
  return 1;
}
