// cuBLAS, cuDNN, NCCL and NVML: enough of each that TensorFlow takes its usual path, and the
// numbers from which operations can be counted. All other functions of these libraries return 0
// (stubs.S).
#include "common.h"
#include "third_party/gpus/cudnn/include/cudnn.h"

// ---- cuBLAS. A handle is its stream. dims of a GEMM: m, n, k, batch, bytes of an element.
static void gemm(const char* name, void* stream, long m, long n, long k, long batch, int size) {
  command((Command){GEMM, device_of_stream(stream), -1, .stream = stream, .name = name,
                    .bytes = (uint64_t)size * batch * (m * k + k * n + m * n),
                    .flops = 2.0 * m * n * k * batch, .dims = {m, n, k, batch, size}});
}
static int type_bytes(int t) {
  return t == 0 ? 4 : t == 1 ? 8 : t == 2 || t == 14 ? 2 : t == 3 || t == 8 ? 1 : 4;
}  // cudaDataType_t
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
#define PLAIN_GEMM(NAME, SIZE)                                     \
  EXPORT int NAME(void** h, int ta, int tb, int m, int n, int k) { \
    gemm(#NAME, *h, m, n, k, 1, SIZE);                             \
    return 0;                                                      \
  }
PLAIN_GEMM(cublasSgemm_v2, 4)
PLAIN_GEMM(cublasDgemm_v2, 8) PLAIN_GEMM(cublasHgemm, 2)
#define BATCHED_GEMM(NAME, SIZE)                                                             \
  EXPORT int NAME(void** h, int ta, int tb, int m, int n, int k, void* al, void* A, int lda, \
                  void* B, int ldb, void* be, void* C, int ldc, int batch) {                 \
    gemm(#NAME, *h, m, n, k, batch, SIZE);                                                   \
    return 0;                                                                                \
  }
    BATCHED_GEMM(cublasSgemmBatched, 4) BATCHED_GEMM(cublasDgemmBatched, 8)
        BATCHED_GEMM(cublasHgemmBatched, 2)
#define STRIDED_GEMM(NAME, SIZE)                                                             \
  EXPORT int NAME(void** h, int ta, int tb, int m, int n, int k, void* al, void* A, int lda, \
                  long sa, void* B, int ldb, long sb, void* be, void* C, int ldc, long sc,   \
                  int batch) {                                                               \
    gemm(#NAME, *h, m, n, k, batch, SIZE);                                                   \
    return 0;                                                                                \
  }
            STRIDED_GEMM(cublasSgemmStridedBatched, 4) STRIDED_GEMM(cublasDgemmStridedBatched, 8)
                STRIDED_GEMM(cublasHgemmStridedBatched, 2) EXPORT
    int cublasGemmEx(void** h, int ta, int tb, int m, int n, int k, void* al, void* A, int at) {
  gemm("cublasGemmEx", *h, m, n, k, 1, type_bytes(at));
  return 0;
}
EXPORT int cublasGemmBatchedEx(void** h, int ta, int tb, int m, int n, int k, void* al, void* A,
                               int at, int lda, void* B, int bt, int ldb, void* be, void* C, int ct,
                               int ldc, int batch) {
  gemm("cublasGemmBatchedEx", *h, m, n, k, batch, type_bytes(at));
  return 0;
}
EXPORT int cublasGemmStridedBatchedEx(void** h, int ta, int tb, int m, int n, int k, void* al,
                                      void* A, int at, int lda, long sa, void* B, int bt, int ldb,
                                      long sb, void* be, void* C, int ct, int ldc, long sc,
                                      int batch) {
  gemm("cublasGemmStridedBatchedEx", *h, m, n, k, batch, type_bytes(at));
  return 0;
}

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
  int magic, type;
  Attribute* first;
  struct Bag* graph;
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
  long batch = number_at(a, 5, 0, 4), k = number_at(a, number_at(o, 3, 0, 4) ? 2 : 3, 0, 8);
  gemm("cublasLtMatmul", stream, number_at(d, 2, 0, 8), number_at(d, 3, 0, 8), k,
       batch > 0 ? batch : 1, type_bytes(number_at(a, 0, 0, 4)));
  return 0;
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
CREATES(FilterDescriptor) CREATES(ConvolutionDescriptor) CREATES(PoolingDescriptor)
    CREATES(LRNDescriptor) CREATES(ActivationDescriptor) CREATES(DropoutDescriptor)
        CREATES(RNNDescriptor) CREATES(RNNDataDescriptor) CREATES(CTCLossDescriptor)
            CREATES(OpTensorDescriptor) CREATES(ReduceTensorDescriptor) EXPORT size_t
    cudnnGetVersion(void) {
  return 91002;
}
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

// Tensors: attribute 0 is what RNN weights ask for, 1 the number of bytes.
FN(int, cudnnSetTensorNdDescriptor, Bag* d, int type, int n, const int* dims, const int* strides) {
  uint64_t bytes = dnn_bytes(type);
  for (int i = 0; i < n; i++) bytes *= dims[i];
  put(d, 1, &bytes, 8, 1, 0);
  return 0;
}
FN(int, cudnnSetTensor4dDescriptor, Bag* d, int format, int type, int n, int c, int h, int w) {
  uint64_t bytes = (uint64_t)dnn_bytes(type) * n * c * h * w;
  put(d, 1, &bytes, 8, 1, 0);
  return 0;
}
static void dnn(const char* name, void* stream, const Bag* tensor, int passes) {
  command((Command){DNN, device_of_stream(stream), -1, .stream = stream, .name = name,
                    .bytes = passes * number_at(tensor, 1, 0, 8)});
}
FN(int, cudnnPoolingForward, void** h, void* p, void* al, Bag* x) {
  dnn("cudnnPoolingForward", *h, x, 2);
  return 0;
}
FN(int, cudnnPoolingBackward, void** h, void* p, void* al, Bag* y, void* yp, Bag* dy, void* dyp,
   Bag* x) {
  dnn("cudnnPoolingBackward", *h, x, 3);
  return 0;
}
FN(int, cudnnLRNCrossChannelForward, void** h, void* p, int mode, void* al, Bag* x) {
  dnn("cudnnLRNCrossChannelForward", *h, x, 2);
  return 0;
}
FN(int, cudnnLRNCrossChannelBackward, void** h, void* p, int mode, void* al, Bag* y) {
  dnn("cudnnLRNCrossChannelBackward", *h, y, 4);
  return 0;
}
FN(int, cudnnSoftmaxForward, void** h, int al, int mode, void* a, Bag* x) {
  dnn("cudnnSoftmaxForward", *h, x, 2);
  return 0;
}
FN(int, cudnnBatchNormalizationForwardInference, void** h, int mode, void* al, void* be, Bag* x) {
  dnn("cudnnBatchNormalizationForwardInference", *h, x, 2);
  return 0;
}
FN(int, cudnnBatchNormalizationForwardTraining, void** h, int mode, void* al, void* be, Bag* x) {
  dnn("cudnnBatchNormalizationForwardTraining", *h, x, 3);
  return 0;
}
FN(int, cudnnBatchNormalizationForwardTrainingEx, void** h, int mode, int ops, void* al, void* be,
   Bag* x) {
  dnn("cudnnBatchNormalizationForwardTrainingEx", *h, x, 3);
  return 0;
}
FN(int, cudnnBatchNormalizationBackward, void** h, int mode, void* a, void* b, void* c, void* d,
   Bag* x) {
  dnn("cudnnBatchNormalizationBackward", *h, x, 5);
  return 0;
}
FN(int, cudnnBatchNormalizationBackwardEx, void** h, int mode, int ops, void* a, void* b, void* c,
   void* d, Bag* x) {
  dnn("cudnnBatchNormalizationBackwardEx", *h, x, 5);
  return 0;
}
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

// ---- cuDNN: recurrent layers. dims of an RNN: time, batch, input, hidden, gates.
typedef struct {
  int64_t hidden, input, layers, gates, ways, size;
} Rnn;
static Rnn* rnn_of(const void* d) { return (Rnn*)find(d, 0)->data; }
FN(int, cudnnSetRNNDescriptor_v8, Bag* d, int algo, int mode, int bias, int direction, int skip,
   int type, int math, int mt, int input, int hidden, int proj, int layers, void* drop,
   unsigned aux) {
  Rnn r = {hidden,
           input,
           layers,
           mode == CUDNN_LSTM  ? 4
           : mode == CUDNN_GRU ? 3
                               : 1,
           direction == CUDNN_BIDIRECTIONAL ? 2 : 1,
           dnn_bytes(type)};
  put(d, 0, &r, sizeof r, 1, 0);
  return 0;
}
FN(int, cudnnSetRNNDataDescriptor, Bag* d, int type, int layout, int time, int batch, int vector,
   const int* lengths, void* fill) {
  int v[3] = {time, batch, vector};
  put(d, 0, v, sizeof v, 3, 0);
  return 0;
}
static void rnn(const char* name, void* stream, const void* d, const Bag* x) {
  Rnn* r = rnn_of(d);
  int64_t t = number_at(x, 0, 0, 4), b = number_at(x, 0, 1, 4);
  double weights = (double)r->ways * r->gates * r->hidden *
                   (r->input + r->hidden + (r->layers - 1) * (r->ways + 1) * r->hidden);
  command((Command){RNN, device_of_stream(stream), -1, .stream = stream, .name = name,
                    .bytes = r->size * (t * b * (r->input + 6 * r->hidden) + weights),
                    .flops = 2 * t * b * weights,
                    .dims = {t, b, r->input, r->hidden, r->gates, r->layers, r->ways, r->size}});
}
FN(int, cudnnRNNForward, void** h, void* d, int mode, void* lengths, Bag* x) {
  rnn("cudnnRNNForward", *h, d, x);
  return 0;
}
FN(int, cudnnRNNBackwardData_v8, void** h, void* d, void* lengths, Bag* y) {
  rnn("cudnnRNNBackwardData_v8", *h, d, y);
  return 0;
}
FN(int, cudnnRNNBackwardWeights_v8, void** h, void* d, int add, void* lengths, Bag* x) {
  rnn("cudnnRNNBackwardWeights_v8", *h, d, x);
  return 0;
}
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

// ---- cuDNN's graphs: a heuristic finds one engine. dims of a convolution: of y, then of w.
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
static Bag* link_of(const Bag* b, int name) {
  Attribute* a = find(b, name);
  return a && a->count ? *(Bag**)data_of(a) : 0;
}
FN(int, cudnnBackendSetAttribute, Bag* d, int name, int type, int64_t count, const void* p) {
  put(d, name, p, count * size_of(type), count, type);
  // The graph of operations is handed on: heuristic -> configuration -> engine and plan.
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && count == 1) {
    Bag* other = *(Bag**)p;
    if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH || name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
      d->graph = other;
    else if (name == CUDNN_ATTR_ENGINECFG_ENGINE ||
             name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) {
      if (other->graph) d->graph = other->graph;
    }
  }
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
    if (p && want > 0 && n) ((Bag**)p)[0]->graph = d->graph;
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
static double elements(const Bag* tensor, int32_t* dims, int room) {
  Attribute* a = find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
  double n = a ? 1 : 0;
  for (int i = 0; a && i < a->count; i++) {
    n *= number_at(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i, 8);
    if (i < room) dims[i] = number_at(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i, 8);
  }
  return n;
}
FN(int, cudnnBackendExecute, void** h, Bag* plan, void* pack) {
  Command c = {DNN, device_of_stream(*h), -1, .stream = *h, .name = "cudnnBackendExecute"};
  Bag* graph = plan->graph ? plan->graph : link_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  Bag* op = link_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  static const int names[3][3] = {
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  static const char* called[3] = {"convolution forward", "convolution backward data",
                                  "convolution backward filter"};
  for (int i = 0; op && i < 3; i++) {
    Bag *x = link_of(op, names[i][0]), *w = link_of(op, names[i][1]), *y = link_of(op, names[i][2]);
    if (!x || !w || !y) continue;
    double nx = elements(x, 0, 0), ny = elements(y, c.dims, 4), nw = elements(w, c.dims + 4, 4);
    int size = dnn_bytes(number_at(x, CUDNN_ATTR_TENSOR_DATA_TYPE, 0, 4));
    c.kind = CONV;
    c.name = called[i];
    c.bytes = size * (nx + ny + nw);
    c.flops = 2 * ny * nw / (c.dims[4] ? c.dims[4] : 1);  // w is [outputs, inputs / groups, ...].
  }
  command(c);
  return 0;
}

// ---- NCCL: a communicator knows its clique; sums are not made.
typedef struct {
  char id[128];
} Unique;
typedef struct {
  Unique id;
  int ranks, rank, device;
  long calls;
} Comm;
static _Atomic long cliques;
static __thread int group;
EXPORT int ncclGetVersion(int* v) {
  *v = 22700;
  return 0;
}
EXPORT int ncclGetUniqueId(Unique* id) {
  memset(id, 0, sizeof *id);
  *(long*)id->id = ++cliques;
  return 0;
}
static int join(Comm** out, int ranks, Unique id, int rank) {
  const char* there = getenv("PRETENDED_NCCL");
  if (there && !strcmp(there, "0")) return 2;  // ncclSystemError
  Comm* c = calloc(1, sizeof *c);
  c->id = id;
  c->ranks = ranks;
  c->rank = rank;
  c->device = device_now();
  *out = c;
  return 0;
}
EXPORT int ncclCommInitRank(Comm** c, int ranks, Unique id, int rank) {
  return join(c, ranks, id, rank);
}
EXPORT int ncclCommInitRankConfig(Comm** c, int ranks, Unique id, int rank, void* config) {
  return join(c, ranks, id, rank);
}
EXPORT int ncclCommInitAll(Comm** c, int n, const int* devices) {
  Unique id;
  ncclGetUniqueId(&id);
  for (int i = 0; i < n; i++) {
    int error = join(&c[i], n, id, i);
    if (error) return error;
    c[i]->device = devices ? devices[i] : i;
  }
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
EXPORT int ncclGroupStart(void) {
  group++;
  return 0;
}
EXPORT int ncclGroupEnd(void) {
  group--;
  return 0;
}
static int nccl_bytes(int t) {
  return t <= 1 ? 1 : t <= 3 ? 4 : t <= 5 ? 8 : t == 6 ? 2 : t == 7 ? 4 : t == 8 ? 8 : 2;
}
static int collective(const char* name, Comm* c, uint64_t bytes, const void* from, void* to,
                      void* stream) {
  char key[160];
  snprintf(key, sizeof key, "%ld:%ld", *(long*)c->id.id, c->calls++);
  Command d = {NCCL,         device_of_stream(stream),   c->ranks, 1, bytes, stream,
               .name = name, .dims = {c->ranks, c->rank}};
  if (from != to && to) memmove(to, from, bytes);
  if (group) command(d);
  else clock_collective(key, c->ranks, d);
  return 0;
}
EXPORT int ncclAllReduce(const void* s, void* r, size_t n, int t, int op, Comm* c, void* stream) {
  return collective("ncclAllReduce", c, n * nccl_bytes(t), s, r, stream);
}
EXPORT int ncclReduce(const void* s, void* r, size_t n, int t, int op, int root, Comm* c,
                      void* stream) {
  return collective("ncclReduce", c, n * nccl_bytes(t), s, r, stream);
}
EXPORT int ncclBroadcast(const void* s, void* r, size_t n, int t, int root, Comm* c, void* stream) {
  return collective("ncclBroadcast", c, n * nccl_bytes(t), s, r, stream);
}
EXPORT int ncclReduceScatter(const void* s, void* r, size_t n, int t, int op, Comm* c,
                             void* stream) {
  return collective("ncclReduceScatter", c, n * nccl_bytes(t), s, r, stream);
}
EXPORT int ncclAllGather(const void* s, void* r, size_t n, int t, Comm* c, void* stream) {
  return collective("ncclAllGather", c, n * nccl_bytes(t), s, r, stream);
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
