// cuBLAS, cuDNN, NCCL and NVML: enough of each that TensorFlow takes its usual path. All other
// functions of these libraries return 0 (stubs.S).
#include "common.h"
#include "third_party/gpus/cudnn/include/cudnn.h"

// ---- cuBLAS. A handle holds its stream; of a call's arguments only the handle is looked at.
static int work(int kind, const char* name, const void* stream) {
  command((Command){kind, device_of_stream(stream), -1, .name = name});
  return 0;
}
EXPORT int cublasCreate_v2(void** h) {
  *h = calloc(1, 64);
  return 0;
}
EXPORT int cublasSetStream_v2(void** h, void* s) {
  *h = s;
  return 0;
}
EXPORT int cublasGetStream_v2(void** h, void** s) {
  *s = *h;
  return 0;
}
EXPORT int cublasGetVersion_v2(void* h, int* v) {
  *v = 120500;
  return 0;
}
EXPORT int cublasGetProperty(int t, int* v) {
  *v = t == 0 ? 12 : 5;
  return 0;
}
EXPORT int cublasGetPointerMode_v2(void* h, int* m) {
  *m = 0;
  return 0;
}
EXPORT int cublasGetMathMode(void* h, int* m) {
  *m = 0;
  return 0;
}
#define PRODUCT(NAME) \
  EXPORT int NAME(void** h) { return work(GEMM, #NAME, *h); }
PRODUCT(cublasSgemm_v2)
PRODUCT(cublasDgemm_v2)
PRODUCT(cublasHgemm)
PRODUCT(cublasGemmEx)
PRODUCT(cublasSgemmBatched)
PRODUCT(cublasDgemmBatched)
PRODUCT(cublasHgemmBatched)
PRODUCT(cublasGemmBatchedEx)
PRODUCT(cublasSgemmStridedBatched)
PRODUCT(cublasDgemmStridedBatched)
PRODUCT(cublasHgemmStridedBatched)
PRODUCT(cublasGemmStridedBatchedEx)

// ---- Descriptors of cublasLt and cuDNN: bags of attributes.
typedef struct Attribute {
  int name;
  size_t n;
  int64_t count;
  int type;
  char data[256];
  void* big;
  struct Attribute* next;
} Attribute;
typedef struct Bag {
  int type;
  Attribute* first;
  char pad[512];
} Bag;
static Bag* bag(int type) {
  Bag* b = calloc(1, sizeof *b);
  b->type = type;
  return b;
}
static Attribute* find(const Bag* b, int name) {
  Attribute* a = b ? b->first : 0;
  while (a && a->name != name) a = a->next;
  return a;
}
static const void* data_of(const Attribute* a) { return a->n > sizeof a->data ? a->big : a->data; }
static void put(Bag* b, int name, const void* p, size_t n, int64_t count, int type) {
  Attribute* a = find(b, name);
  if (!a) {
    a = calloc(1, sizeof *a);
    a->next = b->first;
    b->first = a;
    a->name = name;
  }
  a->n = n;
  a->count = count;
  a->type = type;
  if (n > sizeof a->data) {
    a->big = realloc(a->big, n);
    memcpy(a->big, p, n);
  } else if (p) memcpy(a->data, p, n);
}
static int64_t number_at(const Bag* b, int name, int i, int size) {
  Attribute* a = find(b, name);
  if (!a) return 0;
  return size == 8 ? ((int64_t*)data_of(a))[i] : ((int32_t*)data_of(a))[i];
}

// ---- cublasLt.
EXPORT int cublasLtCreate(void** h) {
  *h = calloc(1, 64);
  return 0;
}
EXPORT size_t cublasLtGetVersion(void) { return 120500; }
EXPORT size_t cublasLtGetCudartVersion(void) { return 12050; }
EXPORT int cublasLtMatmulDescCreate(void** d, int c, int s) {
  Bag* b = bag(0);
  int v = c;
  put(b, 0, &v, 4, 1, 0);
  v = s;
  put(b, 1, &v, 4, 1, 0);
  v = 0;
  for (int i = 2; i < 8; i++) put(b, i, &v, 4, 1, 0);
  *d = b;
  return 0;
}
EXPORT int cublasLtMatmulDescSetAttribute(void* d, int a, const void* p, size_t n) {
  put(d, a, p, n, 1, 0);
  return 0;
}
EXPORT int cublasLtMatmulDescGetAttribute(void* d, int a, void* p, size_t n, size_t* w) {
  Attribute* x = find(d, a);
  if (p) memset(p, 0, n);
  if (x && p) memcpy(p, data_of(x), n < x->n ? n : x->n);
  if (w) *w = n;
  return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(void** d, int t, uint64_t r, uint64_t c, int64_t ld) {
  Bag* b = bag(1);
  int v = t;
  put(b, 0, &v, 4, 1, 0);
  v = 0;
  put(b, 1, &v, 4, 1, 0);
  put(b, 2, &r, 8, 1, 0);
  put(b, 3, &c, 8, 1, 0);
  put(b, 4, &ld, 8, 1, 0);
  v = 1;
  put(b, 5, &v, 4, 1, 0);
  *d = b;
  return 0;
}
EXPORT int cublasLtMatrixLayoutSetAttribute(void* d, int a, const void* p, size_t n) {
  put(d, a, p, n, 1, 0);
  return 0;
}
EXPORT int cublasLtMatrixLayoutGetAttribute(void* d, int a, void* p, size_t n, size_t* w) {
  return cublasLtMatmulDescGetAttribute(d, a, p, n, w);
}
EXPORT int cublasLtMatmulPreferenceCreate(void** d) {
  *d = bag(2);
  return 0;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(void* h, void* o, void* a, void* b, void* c, void* d,
                                          void* p, int wanted, char* results, int* got) {
  // {algo: 64 bytes, workspaceSize: 8, state: 4, wavesCount: 4, reserved: 16}
  memset(results, 0, 96);
  *(float*)(results + 76) = 1;
  *got = 1;
  return 0;
}
EXPORT int cublasLtMatmul(void* h, Bag* o, void* al, void* A, Bag* a, void* B, Bag* b, void* be,
                          void* C, Bag* c, void* D, Bag* d, void* algo, void* w, size_t n,
                          void* stream) {
  return work(GEMM, "cublasLtMatmul", stream);
}

// ---- cuDNN: handles and descriptors. Prototypes that a header has are kept out with FN.
#define FN(R, NAME, ...)                   \
  R my_##NAME(__VA_ARGS__) __asm__(#NAME); \
  EXPORT R my_##NAME(__VA_ARGS__)
#define CREATES(N)                                      \
  int my_create##N(void** d) __asm__("cudnnCreate" #N); \
  EXPORT int my_create##N(void** d) {                   \
    *d = bag(0);                                        \
    return 0;                                           \
  }
CREATES(TensorDescriptor)
CREATES(FilterDescriptor)
CREATES(ConvolutionDescriptor)
CREATES(PoolingDescriptor)
CREATES(LRNDescriptor)
CREATES(ActivationDescriptor)
CREATES(DropoutDescriptor)
CREATES(RNNDescriptor)
CREATES(RNNDataDescriptor)
CREATES(CTCLossDescriptor)
CREATES(OpTensorDescriptor)
CREATES(ReduceTensorDescriptor)
EXPORT size_t cudnnGetVersion(void) { return 91002; }
EXPORT size_t cudnnGetCudartVersion(void) { return 12050; }
EXPORT const char* cudnnGetErrorString(cudnnStatus_t s) {
  return "an error of the pretended cuDNN";
}
EXPORT void cudnnGetLastErrorString(char* m, size_t n) {
  if (n) *m = 0;
}
EXPORT cudnnStatus_t cudnnGetProperty(libraryPropertyType t, int* v) {
  *v = t == MAJOR_VERSION ? 9 : t == MINOR_VERSION ? 10 : 2;
  return 0;
}
EXPORT cudnnStatus_t cudnnCreate(cudnnHandle_t* h) {
  *h = calloc(1, 64);
  return 0;
}
EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s) {
  *(void**)h = s;
  return 0;
}
EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t h, cudaStream_t* s) {
  *s = *(void**)h;
  return 0;
}
EXPORT cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t h, size_t* n) {
  *n = 1024;
  return 0;
}
static int dnn_bytes(int t) { return t == CUDNN_DATA_FLOAT ? 4 : t == CUDNN_DATA_DOUBLE ? 8 : 2; }

// ---- cuDNN: layers.
#define CALL(KIND, NAME)                  \
  int my_##NAME(void** h) __asm__(#NAME); \
  EXPORT int my_##NAME(void** h) { return work(KIND, #NAME, *h); }
CALL(DNN, cudnnPoolingForward)
CALL(DNN, cudnnPoolingBackward)
CALL(DNN, cudnnSoftmaxForward)
CALL(DNN, cudnnLRNCrossChannelForward)
CALL(DNN, cudnnLRNCrossChannelBackward)
CALL(DNN, cudnnBatchNormalizationForwardInference)
CALL(DNN, cudnnBatchNormalizationForwardTraining)
CALL(DNN, cudnnBatchNormalizationForwardTrainingEx)
CALL(DNN, cudnnBatchNormalizationBackward)
CALL(DNN, cudnnBatchNormalizationBackwardEx)
FN(int, cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, void* a, int m, int o, void* x,
   void* z, void* y, void* bn, void* act, size_t* n) {
  *n = 0;
  return 0;
}
FN(int, cudnnGetBatchNormalizationBackwardExWorkspaceSize, void* a, int m, int o, void* x, void* y,
   void* dy, void* dz, void* dx, void* bn, void* act, size_t* n) {
  *n = 0;
  return 0;
}
FN(int, cudnnGetBatchNormalizationTrainingExReserveSpaceSize, void* a, int m, int o, void* act,
   void* x, size_t* n) {
  *n = 0;
  return 0;
}

// ---- cuDNN: recurrent layers. Attribute 0 of a tensor is the shape of an RNN's weights.
typedef struct {
  int64_t hidden, input, gates, size;
} Rnn;
static Rnn* rnn_of(const void* d) { return (Rnn*)find(d, 0)->data; }
FN(int, cudnnSetRNNDescriptor_v8, Bag* d, int algo, int mode, int bias, int direction, int skip,
   int type, int math, int mt, int input, int hidden, int proj, int layers, void* drop,
   unsigned aux) {
  Rnn r = {hidden, input, mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1, dnn_bytes(type)};
  put(d, 0, &r, sizeof r, 1, 0);
  return 0;
}
CALL(RNN, cudnnRNNForward)
CALL(RNN, cudnnRNNBackwardData_v8)
CALL(RNN, cudnnRNNBackwardWeights_v8)
FN(int, cudnnGetRNNWeightSpaceSize, void* h, void* d, size_t* n) {
  Rnn* r = rnn_of(d);
  *n = r->size * r->gates * (r->hidden * r->input + r->hidden * r->hidden + 2 * r->hidden);
  return 0;
}
FN(int, cudnnGetRNNTempSpaceSizes, void* h, void* d, int mode, void* x, size_t* w, size_t* r) {
  if (w) *w = 1024;
  if (r) *r = mode == CUDNN_FWD_MODE_TRAINING ? 1024 : 0;
  return 0;
}
FN(int, cudnnGetRNNWeightParams, void* h, void* d, int layer, size_t n, const void* space, int id,
   Bag* md, void** ma, Bag* bd, void** ba) {
  Rnn* r = rnn_of(d);
  int64_t g = r->gates, in = r->hidden * r->input, re = r->hidden * r->hidden;
  char* p = (char*)space;
  if (ma) *ma = p + r->size * (id < g ? id * in : g * in + (id - g) * re);
  if (ba) *ba = p + r->size * (g * (in + re) + id * r->hidden);
  int64_t dims[3] = {1, id < g ? r->input : r->hidden, r->hidden}, bias[3] = {1, r->hidden, 1};
  put(md, 0, dims, sizeof dims, 1, 0);
  put(bd, 0, bias, sizeof bias, 1, 0);
  return 0;
}
FN(int, cudnnGetTensorNdDescriptor, Bag* d, int want, int* t, int* nd, int* dims, int* strides) {
  for (int i = 0; i < 3; i++) {
    dims[i] = find(d, 0) ? number_at(d, 0, i, 8) : 1;
    strides[i] = 1;
  }
  if (t) *t = CUDNN_DATA_FLOAT;
  if (nd) *nd = 3;
  return 0;
}

// ---- cuDNN's graphs, such as convolutions: a heuristic finds one engine.
FN(int, cudnnBackendCreateDescriptor, int type, void** d) {
  *d = bag(type);
  return 0;
}
FN(int, cudnnBackendInitialize, void* d) { return 0; }
FN(int, cudnnBackendFinalize, void* d) { return 0; }
static size_t size_of(int t) {
  switch (t) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_FRACTION: return 16;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    default: return 4;
  }
}
FN(int, cudnnBackendSetAttribute, Bag* d, int name, int type, int64_t count, const void* p) {
  put(d, name, p, count * size_of(type), count, type);
  return 0;
}
FN(int, cudnnBackendGetAttribute, Bag* d, int name, int type, int64_t want, int64_t* got, void* p) {
  Attribute* a = find(d, name);
  if (type == CUDNN_TYPE_NUMERICAL_NOTE || type == CUDNN_TYPE_BEHAVIOR_NOTE) {
    if (got) *got = 0;
    return 0;
  }
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    int64_t n = name == CUDNN_ATTR_ENGINEHEUR_RESULTS ? 1
                : name == CUDNN_ATTR_ENGINECFG_ENGINE ? 1
                : a                                   ? a->count
                                                      : 0;
    if (got) *got = n;
    return 0;
  }
  if (a) {
    if (got) *got = a->count;
    int64_t n = want < a->count ? want : a->count;
    if (p) memcpy(p, data_of(a), n * size_of(type));
    return 0;
  }
  if (got) *got = 1;
  if (p && want) memset(p, 0, size_of(type));
  return 0;
}
CALL(DNN, cudnnBackendExecute)

// ---- NCCL: sums are not made.
typedef struct {
  char id[128];
} Unique;
typedef struct {
  int ranks, rank, device;
} Comm;
EXPORT int ncclGetVersion(int* v) {
  *v = 22700;
  return 0;
}
EXPORT int ncclGetUniqueId(Unique* id) {
  memset(id, 0, sizeof *id);
  return 0;
}
static int join(Comm** out, int ranks, int rank, int device) {
  const char* there = getenv("PRETENDED_NCCL");
  if (there && !strcmp(there, "0")) return 2;  // ncclSystemError
  *out = calloc(1, sizeof **out);
  **out = (Comm){ranks, rank, device};
  return 0;
}
EXPORT int ncclCommInitRank(Comm** c, int ranks, Unique id, int rank) {
  return join(c, ranks, rank, device_now());
}
EXPORT int ncclCommInitRankConfig(Comm** c, int ranks, Unique id, int rank, void* config) {
  return join(c, ranks, rank, device_now());
}
EXPORT int ncclCommInitAll(Comm** c, int n, const int* devices) {
  for (int i = 0; i < n; i++) join(&c[i], n, i, devices ? devices[i] : i);
  return 0;
}
EXPORT int ncclCommCount(Comm* c, int* n) {
  *n = c->ranks;
  return 0;
}
EXPORT int ncclCommUserRank(Comm* c, int* n) {
  *n = c->rank;
  return 0;
}
EXPORT int ncclCommCuDevice(Comm* c, int* n) {
  *n = c->device;
  return 0;
}
EXPORT int ncclCommGetAsyncError(Comm* c, int* e) {
  *e = 0;
  return 0;
}
EXPORT const char* ncclGetErrorString(int e) { return "an error of the pretended NCCL"; }
EXPORT const char* ncclGetLastError(Comm* c) { return ""; }
static int nccl_bytes(int t) {
  static const int bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8};  // By ncclDataType_t, up to float64.
  return t >= 0 && t < 9 ? bytes[t] : 2;
}
static int collective(const char* name, Comm* c, size_t n, int type, const void* from, void* to,
                      void* stream) {
  uint64_t bytes = n * nccl_bytes(type);
  if (from != to && to) memmove(to, from, bytes);
  command((Command){NCCL, device_of_stream(stream), c->ranks, 1, bytes, name});
  return 0;
}
EXPORT int ncclAllReduce(const void* s, void* r, size_t n, int t, int op, Comm* c, void* stream) {
  return collective("ncclAllReduce", c, n, t, s, r, stream);
}
EXPORT int ncclReduce(const void* s, void* r, size_t n, int t, int op, int root, Comm* c,
                      void* stream) {
  return collective("ncclReduce", c, n, t, s, r, stream);
}
EXPORT int ncclBroadcast(const void* s, void* r, size_t n, int t, int root, Comm* c, void* stream) {
  return collective("ncclBroadcast", c, n, t, s, r, stream);
}
EXPORT int ncclReduceScatter(const void* s, void* r, size_t n, int t, int op, Comm* c,
                             void* stream) {
  return collective("ncclReduceScatter", c, n, t, s, r, stream);
}
EXPORT int ncclAllGather(const void* s, void* r, size_t n, int t, Comm* c, void* stream) {
  return collective("ncclAllGather", c, n, t, s, r, stream);
}

// ---- NVML: there, and knows nothing.
EXPORT int nvmlInit(void) { return 0; }
EXPORT int nvmlInit_v2(void) { return 0; }
EXPORT int nvmlShutdown(void) { return 0; }
EXPORT const char* nvmlErrorString(int e) { return "an error of the pretended NVML"; }
EXPORT int nvmlSystemGetDriverVersion(char* v, unsigned n) {
  snprintf(v, n, "575.51.03");
  return 0;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* n) {
  *n = num_devices();
  return 0;
}

// ---- All others: logged, and told once with PRETENDED_VERBOSE. What computes counts as a kernel.
static _Atomic char seen[8192];
void pretended_other(int index, const char* name) {
  int computes = !strncmp(name, "cudnn", 5) &&
                 (strstr(name, "Forward") || strstr(name, "Backward")) &&
                 !strstr(name, "Descriptor") && !strstr(name, "Get") && !strstr(name, "Size");
  command((Command){computes ? DNN : LIBRARY, device_now(), -1, .name = name});
  if (!seen[index]) {
    seen[index] = 1;
    if (getenv("PRETENDED_VERBOSE")) fprintf(stderr, "pretended GPU: %s\n", name);
  }
}
