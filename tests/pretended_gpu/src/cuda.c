// The driver and the runtime: devices whose memory is host memory, copies that are real, kernels
// that do nothing.
#include "common.h"
#include "third_party/gpus/cuda/include/cuda.h"
#include "third_party/gpus/cuda/include/cuda_runtime_api.h"

#define ARENA \
  (1ull << 37)  // 128 GiB of addresses for each device, of which only what is touched exists.
#define OK(...)  \
  {              \
    __VA_ARGS__; \
    return 0;    \
  }

static int number(const char* name, int otherwise) {
  const char* s = getenv(name);
  return s ? atoi(s) : otherwise;
}
int num_devices(void) {
  static int n = -1;
  if (n < 0) {
    n = number("PRETENDED_GPUS", 2);
    if (n > MAX_DEVICES) n = MAX_DEVICES;
  }
  return n;
}
static size_t total_bytes(void) { return (size_t)number("PRETENDED_GPU_GIGABYTES", 40) << 30; }
// With very many multiprocessors a launch's grid is not capped and tells how many elements there
// are.
static int multiprocessors(void) { return number("PRETENDED_GPU_SMS", 32768); }

// ---- Contexts: one for each device; the current one is the thread's.
typedef struct {
  int device;
  char pad[60];
} Context;
static Context contexts[MAX_DEVICES];
static __thread int current;
static __thread Context* stack[64];
static __thread int depth;
static Context* context(void) { return depth ? stack[depth - 1] : 0; }
int device_now(void) {
  Context* c = context();
  return c ? c->device : current;
}

// ---- Streams.
typedef struct Known {
  Stream stream;
  struct Known* next;
  char pad[24];
} Known;
static Known* known;
static Stream defaults[MAX_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
Stream* stream_of(const void* s) {
  if ((uint64_t)s > 4096) return (Stream*)s;
  int d = device_now();
  defaults[d].device = d;
  return &defaults[d];
}
int device_of_stream(const void* s) { return stream_of(s)->device; }
static CUresult new_stream(void* out, int priority) {
  Known* k = calloc(1, sizeof *k);
  k->stream.device = device_now();
  k->stream.priority = priority;
  pthread_mutex_lock(&lock);
  k->next = known;
  known = k;
  pthread_mutex_unlock(&lock);
  *(void**)out = k;
  return 0;
}
static double device_ready(int d) {
  double t = defaults[d].ready;
  for (Known* k = known; k; k = k->next)
    if (k->stream.device == d && k->stream.ready > t) t = k->stream.ready;
  return t;
}
EXPORT CUresult cuStreamCreate(CUstream* s, unsigned f) { return new_stream(s, 0); }
EXPORT CUresult cuStreamCreateWithPriority(CUstream* s, unsigned f, int p) {
  return new_stream(s, p);
}
EXPORT CUresult cuStreamGetPriority(CUstream s, int* p)
    OK(*p = stream_of(s)->priority) EXPORT CUresult cuStreamGetCtx(CUstream s, CUcontext* c) {
  int d = device_of_stream(s);
  contexts[d].device = d;
  *c = (CUcontext)&contexts[d];
  return 0;
}
EXPORT CUresult cuStreamSynchronize(CUstream s) {
  command((Command){STREAM_SYNC, device_of_stream(s), -1, .stream = s});
  if (clock_on) clock_sync(stream_of(s)->ready);
  return 0;
}
EXPORT CUresult cuStreamQuery(CUstream s) {
  return clock_on && stream_of(s)->ready > clock_thread() ? CUDA_ERROR_NOT_READY : 0;
}
EXPORT CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* c)
    OK(*c = CU_STREAM_CAPTURE_STATUS_NONE) EXPORT CUresult cuCtxSynchronize(void) {
  command((Command){CTX_SYNC, device_now(), -1});
  if (clock_on) clock_sync(device_ready(device_now()));
  return 0;
}
EXPORT CUresult cuLaunchHostFunc(CUstream s, CUhostFn f, void* data) {
  command((Command){HOST_FUNC, device_of_stream(s), -1, .stream = s});
  clock_call(stream_of(s)->ready, f, data);
  return 0;
}

// ---- Events.
EXPORT CUresult cuEventCreate(CUevent* e, unsigned f) OK(*e = calloc(1, 64)) EXPORT CUresult
    cuEventDestroy_v2(CUevent e)
        OK(clock_forget((CudaEvent*)e))  // Never freed: a poller may still hold it.
    EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
  command((Command){EVENT_RECORD, device_of_stream(s), -1, .stream = s, .ident = (uint64_t)e});
  clock_forget((CudaEvent*)e);
  double t = clock_on ? clock_thread() : 0, ready = stream_of(s)->ready;
  ((CudaEvent*)e)->time = ready > t ? ready : t;
  return 0;
}
EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned f) {
  command((Command){STREAM_WAIT, device_of_stream(s), -1, .stream = s, .ident = (uint64_t)e});
  if (((CudaEvent*)e)->time > stream_of(s)->ready) stream_of(s)->ready = ((CudaEvent*)e)->time;
  return 0;
}
EXPORT CUresult cuEventQuery(CUevent e) {
  int ready = !clock_on || clock_query((CudaEvent*)e);
  if (ready)
    log_add(&(Command){EVENT_QUERY, -1, -1, .ident = (uint64_t)e}, clock_on ? clock_thread() : 0, 0,
            0);
  return ready ? 0 : CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuEventSynchronize(CUevent e) {
  command((Command){EVENT_SYNC, device_now(), -1, .ident = (uint64_t)e});
  if (clock_on) clock_sync(((CudaEvent*)e)->time);
  return 0;
}
EXPORT CUresult cuEventElapsedTime(float* ms, CUevent a, CUevent b) OK(*ms = 0.01f)

    // ---- Memory.
    static char* arenas[MAX_DEVICES];
static _Atomic uint64_t used[MAX_DEVICES];
static int device_of(const void* p) {
  for (int d = 0; d < num_devices(); d++)
    if (arenas[d] && (char*)p >= arenas[d] && (char*)p < arenas[d] + ARENA) return d;
  return -1;
}
static void* device_alloc(int d, size_t n) {
  pthread_mutex_lock(&lock);
  if (!arenas[d])
    arenas[d] =
        mmap(0, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  uint64_t begin = used[d], size = ((n + (1 << 21) - 1) & ~((1ull << 21) - 1)) + (1 << 21);
  int fits = begin + size <= total_bytes() && begin + size <= ARENA;
  if (fits) used[d] += size;
  pthread_mutex_unlock(&lock);
  if (!fits) return 0;
  command((Command){MALLOC, d, -1, .bytes = n});
  return arenas[d] + begin;
}
#define MAX_PINNED 65536
static struct {
  char* p;
  size_t n;
} pinned[MAX_PINNED];
static _Atomic int num_pinned;
static void add_pinned(void* p, size_t n) {
  int i = num_pinned++;
  if (i < MAX_PINNED) {
    pinned[i].n = n;
    pinned[i].p = p;
  }
}
static int is_pinned(const void* p) {
  int n = num_pinned;
  if (n > MAX_PINNED) n = MAX_PINNED;
  for (int i = n - 1; i >= 0; i--)
    if ((char*)p >= pinned[i].p && (char*)p < pinned[i].p + pinned[i].n) return 1;
  return 0;
}
static CUresult host_alloc(void** p, size_t n) {
  if (posix_memalign(p, 4096, n ? n : 1)) return CUDA_ERROR_OUT_OF_MEMORY;
  add_pinned(*p, n);
  command((Command){HOST_MALLOC, -1, -1, 1, n});
  return 0;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t n) {
  *p = (CUdeviceptr)device_alloc(device_now(), n);
  return *p ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
}
EXPORT CUresult cuMemAllocManaged(CUdeviceptr* p, size_t n, unsigned f) {
  return cuMemAlloc_v2(p, n);
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr p) OK() EXPORT CUresult
    cuMemHostAlloc(void** p, size_t n, unsigned f) {
  return host_alloc(p, n);
}
EXPORT CUresult cuMemAllocHost_v2(void** p, size_t n) { return host_alloc(p, n); }
EXPORT CUresult cuMemFreeHost(void* p) OK() EXPORT CUresult
    cuMemHostRegister_v2(void* p, size_t n, unsigned f) OK(add_pinned(p, n)) EXPORT CUresult
    cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* h, void* p) {
  return CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemGetAllocationGranularity(size_t* g, const CUmemAllocationProp* p,
                                              CUmemAllocationGranularity_flags f)
    OK(*g = 1 << 21) EXPORT CUresult
    cuMemGetAddressRange_v2(CUdeviceptr* b, size_t* n, CUdeviceptr p) {
  int d = device_of((void*)p);
  if (d < 0) return CUDA_ERROR_NOT_FOUND;
  if (b) *b = (CUdeviceptr)arenas[d];
  if (n) *n = ARENA;
  return 0;
}
EXPORT CUresult cuMemGetInfo_v2(size_t* free, size_t* total)
    OK(*total = total_bytes(); *free = *total - used[device_now()]) EXPORT CUresult
    cuMemCreate(CUmemGenericAllocationHandle* h, size_t n, const CUmemAllocationProp* p,
                unsigned long long f) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* p, CUdevice d) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice d, CUgraphMem_attribute a, void* v)
    OK(*(uint64_t*)v = 0) EXPORT CUresult
    cuPointerGetAttribute(void* data, CUpointer_attribute a, CUdeviceptr p) {
  int d = device_of((void*)p);
  for (int i = 0; d < 0 && i < MAX_DEVICES; i++)
    if ((char*)p == (char*)&contexts[i]) d = i;
  if (a == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int*)data = d < 0 ? 0 : d;
  else if (a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
    *(unsigned*)data = d < 0 ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  else if (a == CU_POINTER_ATTRIBUTE_CONTEXT)
    *(CUcontext*)data = (CUcontext)&contexts[d < 0 ? 0 : d];
  else if (a == CU_POINTER_ATTRIBUTE_IS_MANAGED) *(unsigned*)data = 0;
  else return CUDA_ERROR_INVALID_VALUE;
  return 0;
}

// ---- Copies. A small number that a kernel would have computed and that steers the host (how many
// rows, whether all is finite) reads as 1. What was itself copied in since the last kernel is kept.
#define FRESH 256
static struct {
  const void* p;
  size_t n;
} fresh[MAX_DEVICES][FRESH];
static int num_fresh[MAX_DEVICES];
static int is_fresh(int d, const void* p, size_t n) {
  for (int i = 0; i < num_fresh[d] && i < FRESH; i++)
    if (fresh[d][i].p == p && fresh[d][i].n >= n) return 1;
  return 0;
}
static int copy(void* to, const void* from, size_t n, const void* stream) {
  int d = device_of(to), s = device_of(from);
  Command c = {0, s, -1, 1, n, (void*)stream};
  if (s >= 0 && d < 0) {
    c.kind = D2H;
    c.pinned = is_pinned(to);
    if (n <= 8 && !is_fresh(s, from, n)) {
      memset(to, 0, n);
      *(char*)to = 1;
    } else memmove(to, from, n);
    command(c);
    return 0;
  }
  memmove(to, from, n);
  if (s < 0 && d >= 0) {
    c.kind = H2D;
    c.device = d;
    c.pinned = is_pinned(from);
    int i = num_fresh[d]++ % FRESH;
    fresh[d][i].p = to;
    fresh[d][i].n = n;
  } else if (s != d) {
    c.kind = P2P;
    c.peer = d;
  } else {
    c.kind = D2D;
    c.peer = d;
  }
  if (s >= 0 || d >= 0) command(c);
  return 0;
}
static int copy_now(void* to, const void* from, size_t n) {
  copy(to, from, n, 0);
  if (device_of(to) < 0) {
    command((Command){STREAM_SYNC, device_of(from), -1, .name = "a copy that waits"});
    if (clock_on) clock_sync(stream_of(0)->ready);
  }
  return 0;
}
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void* s, size_t n) {
  return copy_now((void*)d, s, n);
}
EXPORT CUresult cuMemcpyDtoH_v2(void* d, CUdeviceptr s, size_t n) {
  return copy_now(d, (void*)s, n);
}
EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr d, CUdeviceptr s, size_t n) {
  return copy_now((void*)d, (void*)s, n);
}
EXPORT CUresult cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) {
  return copy_now((void*)d, (void*)s, n);
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void* s, size_t n, CUstream t) {
  return copy((void*)d, s, n, t);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void* d, CUdeviceptr s, size_t n, CUstream t) {
  return copy(d, (void*)s, n, t);
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream t) {
  return copy((void*)d, (void*)s, n, t);
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream t) {
  return copy((void*)d, (void*)s, n, t);
}
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr d, CUcontext a, CUdeviceptr s, CUcontext b, size_t n,
                                  CUstream t) {
  return copy((void*)d, (void*)s, n, t);
}
EXPORT cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, enum cudaMemcpyKind k,
                                   cudaStream_t t) {
  return copy(d, s, n, t);
}
EXPORT cudaError_t cudaMemcpy(void* d, const void* s, size_t n, enum cudaMemcpyKind k) {
  return copy_now(d, s, n);
}
#define SET(P, V, N, T, S)                                                         \
  do {                                                                             \
    for (size_t i = 0; i < (N); i++) ((T*)(P))[i] = (T)(V);                        \
    command((Command){MEMSET, device_of((void*)(P)), -1, .bytes = (N) * sizeof(T), \
                      .stream = (void*)(S)});                                      \
  } while (0)
EXPORT CUresult cuMemsetD8_v2(CUdeviceptr p, unsigned char v, size_t n)
    OK(SET(p, v, n, unsigned char, 0)) EXPORT CUresult
    cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream t)
        OK(SET(p, v, n, unsigned char, t)) EXPORT CUresult
    cuMemsetD32_v2(CUdeviceptr p, unsigned v, size_t n)
        OK(SET(p, v, n, unsigned, 0)) EXPORT CUresult
    cuMemsetD32Async(CUdeviceptr p, unsigned v, size_t n, CUstream t)
        OK(SET(p, v, n, unsigned, t)) EXPORT cudaError_t
    cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t t)
        OK(SET(p, v, n, unsigned char, t)) EXPORT cudaError_t
    cudaMemset2DAsync(void* p, size_t pitch, int v, size_t w, size_t h, cudaStream_t t)
        OK(for (size_t i = 0; i < h; i++) SET((char*)p + i * pitch, v, w, unsigned char, t))

    // ---- Devices.
    static int attribute(int a) {
  switch (a) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 166912;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 167936;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1410000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 1215000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 5120;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return multiprocessors();
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 40 << 20;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 8;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 0;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 3;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return 1;
    default: return 0;
  }
}
EXPORT CUresult cuInit(unsigned f) { return num_devices() ? 0 : CUDA_ERROR_NO_DEVICE; }
EXPORT CUresult cuDriverGetVersion(int* v) OK(*v = 12090) EXPORT CUresult cuDeviceGetCount(int* n)
    OK(*n = num_devices()) EXPORT CUresult cuDeviceGet(CUdevice* d, int i) {
  *d = i;
  return i < num_devices() ? 0 : CUDA_ERROR_INVALID_DEVICE;
}
EXPORT CUresult cuDeviceGetName(char* s, int n, CUdevice d)
    OK(snprintf(s, n, "Pretended GPU %d", d)) EXPORT CUresult
    cuDeviceTotalMem_v2(size_t* n, CUdevice d) OK(*n = total_bytes()) EXPORT CUresult
    cuDeviceGetPCIBusId(char* s, int n, CUdevice d)
        OK(snprintf(s, n, "0000:%02x:00.0", d + 1)) EXPORT CUresult
    cuDeviceGetUuid(CUuuid* u, CUdevice d)
        OK(memset(u, 0, sizeof *u); ((char*)u)[0] = d) EXPORT CUresult
    cuDeviceGetUuid_v2(CUuuid* u, CUdevice d) {
  return cuDeviceGetUuid(u, d);
}
EXPORT CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice d)
    OK(*v = attribute(a)) EXPORT CUresult
    cuDevicePrimaryCtxGetState(CUdevice d, unsigned* f, int* a) OK(*f = 0; *a = 0) EXPORT CUresult
    cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice d)
        OK(contexts[d].device = d; *c = (CUcontext)&contexts[d]) EXPORT CUresult
    cuDeviceCanAccessPeer(int* can, CUdevice a, CUdevice b)
        OK(*can = number("PRETENDED_PEERS", 1)) EXPORT CUresult
    cuDeviceGetP2PAttribute(int* v, CUdevice_P2PAttribute a, CUdevice x, CUdevice y)
        OK(*v = 1) EXPORT CUresult cuCtxGetCurrent(CUcontext* c)
            OK(*c = (CUcontext)context()) EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
  if (!depth) depth = 1;
  stack[depth - 1] = (Context*)c;
  if (c) current = ((Context*)c)->device;
  else depth--;
  return 0;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext c)
    OK(stack[depth++] = (Context*)c; if (c) current = ((Context*)c)->device) EXPORT CUresult
    cuCtxPopCurrent_v2(CUcontext* c) {
  Context* top = context();
  if (c) *c = (CUcontext)top;
  if (depth) depth--;
  if (context()) current = context()->device;
  return 0;
}
EXPORT CUresult cuCtxGetDevice(CUdevice* d) OK(*d = device_now()) EXPORT CUresult
    cuCtxGetStreamPriorityRange(int* l, int* g) OK(if (l) * l = 0; if (g) * g = -5) EXPORT CUresult
    cuCtxGetApiVersion(CUcontext c, unsigned* v) OK(*v = 12090) EXPORT CUresult
    cuGetErrorName(CUresult r, const char** s)
        OK(*s = r == CUDA_ERROR_NOT_READY ? "CUDA_ERROR_NOT_READY"
                                          : "PRETENDED_ERROR") EXPORT CUresult
    cuGetErrorString(CUresult r, const char** s)
        OK(*s = "an error of the pretended driver") EXPORT CUresult
    cuGetExportTable(const void** t, const CUuuid* id) {
  *t = 0;
  return CUDA_ERROR_NOT_SUPPORTED;
}
EXPORT CUresult cuGetProcAddress_v2(const char* s, void** p, int v, cuuint64_t f,
                                    CUdriverProcAddressQueryResult* r) {
  *p = 0;
  if (r) *r = 1;
  return CUDA_ERROR_NOT_FOUND;
}

// ---- Kernels of the driver: a function is its name.
typedef struct {
  const char* name;
} Function;
static void* handle(const char* name) {
  Function* f = calloc(1, 64);
  f->name = name ? strdup(name) : "?";
  return f;
}
EXPORT CUresult cuModuleLoadData(CUmodule* m, const void* i)
    OK(*m = handle("module")) EXPORT CUresult
    cuModuleLoadDataEx(CUmodule* m, const void* i, unsigned n, CUjit_option* o, void** v)
        OK(*m = handle("module")) EXPORT CUresult cuModuleLoadFatBinary(CUmodule* m, const void* i)
            OK(*m = handle("module")) EXPORT CUresult
    cuModuleGetFunction(CUfunction* f, CUmodule m, const char* name)
        OK(*f = handle(name)) EXPORT CUresult
    cuModuleGetGlobal_v2(CUdeviceptr* p, size_t* n, CUmodule m, const char* name)
        OK(if (p) * p = (CUdeviceptr)device_alloc(device_now(), 4096);
           if (n) * n = 4096) EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* m)
            OK(*m = CU_MODULE_LAZY_LOADING) EXPORT CUresult
    cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction f)
        OK(*v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
                : a == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
                                                             : 0) EXPORT CUresult
    cuKernelGetFunction(CUfunction* f, CUkernel k) OK(*f = (CUfunction)k) EXPORT CUresult
    cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, CUfunction f, int b, size_t s)
        OK(*n = 2) EXPORT CUresult
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, CUfunction f, int b, size_t s,
                                                         unsigned g) OK(*n = 2) EXPORT CUresult
    cuOccupancyMaxPotentialBlockSize(int* g, int* b, CUfunction f, CUoccupancyB2DSize d, size_t s,
                                     int l) OK(*g = multiprocessors(); *b = 256)
    // What a kernel reads and writes, from its name, its threads and, of reductions, their
    // arguments. 0: not known.
    static uint64_t bytes_of(const char* name, double threads, void** p) {
  if (!name) return 0;
  if (p && (strstr(name, "ColumnReduce") || strstr(name, "RowReduceKernel")))
    return 4ull * *(int*)p[2] * *(int*)p[3];
  if (p && strstr(name, "BlockReduceKernel")) return 4ull * *(int*)p[2];
  if (strstr(name, "_GPU_DT_") || !strcmp(name, "main_kernel"))
    return 4 * 12 * threads;  // 4 elements in a thread.
  if (strstr(name, "SwapDimension")) return 4 * 8 * threads;
  if (strstr(name, "DeviceReduceKernel") || strstr(name, "SegmentedReduce"))
    return 16 * 4 * threads;
  if (strstr(name, "GenerateNormalizedProb")) return 4 * 8 * threads;
  if (strstr(name, "EigenMetaKernel"))
    return 8 * threads;  // Slices, concatenations, sums of a few.
  return 0;
}
static int launch(const char* name, dim3 g, dim3 b, const void* s, void** p) {
  int d = device_of_stream(s);
  num_fresh[d] = 0;
  double threads = (double)g.x * g.y * g.z * b.x * b.y * b.z;
  command((Command){LAUNCH, d, -1, .bytes = bytes_of(name, threads, p), .stream = (void*)s,
                    .name = name, .grid = {g.x, g.y, g.z}, .block = {b.x, b.y, b.z}});
  return 0;
}
EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned x,
                               unsigned y, unsigned z, unsigned m, CUstream s, void** p, void** e) {
  return launch(((Function*)f)->name, (dim3){a, b, c}, (dim3){x, y, z}, s, 0);
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** p, void** e) {
  return launch(((Function*)f)->name, (dim3){c->gridDimX, c->gridDimY, c->gridDimZ},
                (dim3){c->blockDimX, c->blockDimY, c->blockDimZ}, c->hStream, 0);
}

// ---- The runtime.
EXPORT cudaError_t cudaGetDeviceCount(int* n) OK(*n = num_devices()) EXPORT cudaError_t
    cudaGetDevice(int* d) OK(*d = device_now()) EXPORT cudaError_t cudaSetDevice(int d) {
  contexts[d].device = d;
  return cuCtxSetCurrent((CUcontext)&contexts[d]);
}
EXPORT cudaError_t cudaDriverGetVersion(int* v) OK(*v = 12090) EXPORT cudaError_t
    cudaRuntimeGetVersion(int* v) OK(*v = 12050) EXPORT cudaError_t
    cudaDeviceGetAttribute(int* v, enum cudaDeviceAttr a, int d)
        OK(*v = attribute(a)) EXPORT cudaError_t
    cudaGetDeviceProperties_v2(struct cudaDeviceProp* p, int d) {
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "Pretended GPU %d", d);
  p->totalGlobalMem = total_bytes();
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->major = 8;
  p->minor = 0;
  p->multiProcessorCount = multiprocessors();
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerMultiprocessor = 167936;
  p->sharedMemPerBlockOptin = 166912;
  p->l2CacheSize = 40 << 20;
  p->clockRate = 1410000;
  p->regsPerMultiprocessor = 65536;
  return 0;
}
EXPORT cudaError_t cudaGetLastError(void) OK() EXPORT cudaError_t cudaPeekAtLastError(void)
    OK() EXPORT const char* cudaGetErrorString(cudaError_t e) {
  return "an error of the pretended runtime";
}
EXPORT const char* cudaGetErrorName(cudaError_t e) { return "PRETENDED_ERROR"; }
EXPORT cudaError_t cudaMalloc(void** p, size_t n) {
  *p = device_alloc(device_now(), n);
  return *p ? 0 : cudaErrorMemoryAllocation;
}
EXPORT cudaError_t cudaFree(void* p) OK() EXPORT cudaError_t cudaMemGetInfo(size_t* f, size_t* t) {
  return cuMemGetInfo_v2(f, t);
}
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t s) { return cuStreamSynchronize(s); }
EXPORT cudaError_t cudaDeviceSynchronize(void) { return cuCtxSynchronize(); }
EXPORT cudaError_t cudaEventCreate(cudaEvent_t* e) { return cuEventCreate(e, 0); }
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) {
  return cuEventCreate(e, 0);
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cuEventRecord(e, s); }
EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) { return cuEventQuery(e); }
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t e) { return cuEventSynchronize(e); }
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
  return cuStreamWaitEvent(s, e, f);
}
EXPORT cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b)
    OK(*ms = 0.01f) EXPORT cudaError_t cudaHostGetFlags(unsigned* f, void* p)
        OK(*f = 0) EXPORT cudaError_t
    cudaFuncGetAttributes(struct cudaFuncAttributes* a, const void* f)
        OK(memset(a, 0, sizeof *a); a->maxThreadsPerBlock = 1024; a->numRegs = 32;
           a->ptxVersion = 80; a->binaryVersion = 80;
           a->maxDynamicSharedSizeBytes = 49152) EXPORT cudaError_t
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int b, size_t s)
        OK(*n = 2) EXPORT cudaError_t
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* f, int b, size_t s,
                                                           unsigned g) OK(*n = 2)
// ---- Kernels of the runtime: TensorFlow registers its own at load, by the address of a host stub.
#define TABLE (1 << 20)
        static struct {
  const void* f;
  const char* name;
} names[TABLE];
static const char* name_of(const void* f) {
  for (uint64_t i = ((uint64_t)f >> 4) % TABLE;; i = (i + 1) % TABLE) {
    if (names[i].f == f) return names[i].name;
    if (!names[i].f) return "unknown";
  }
}
EXPORT void** __cudaRegisterFatBinary(void* b) {
  static void* h[4];
  return h;
}
EXPORT void __cudaRegisterFatBinaryEnd(void** h) {}
EXPORT void __cudaUnregisterFatBinary(void** h) {}
EXPORT char __cudaInitModule(void** h) { return 1; }
EXPORT void __cudaRegisterVar(void** h, char* v, char* a, const char* n, int e, size_t s, int c,
                              int g) {}
EXPORT void __cudaRegisterFunction(void** h, const char* f, char* df, const char* name, int l,
                                   void* t, void* b, void* bd, void* gd, int* w) {
  pthread_mutex_lock(&lock);
  uint64_t i = ((uint64_t)f >> 4) % TABLE;
  while (names[i].f && names[i].f != f) i = (i + 1) % TABLE;
  names[i].f = f;
  names[i].name = name;
  pthread_mutex_unlock(&lock);
}
typedef struct {
  dim3 g, b;
  size_t m;
  void* s;
} Config;
static __thread Config configs[16];
static __thread int num_configs;
EXPORT unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t m, struct CUstream_st* s)
    OK(configs[num_configs++ & 15] = (Config){g, b, m, s}) EXPORT cudaError_t
    __cudaPopCallConfiguration(dim3* g, dim3* b, size_t* m, void* s)
        OK(Config c = configs[--num_configs & 15]; *g = c.g; *b = c.b; *m = c.m; *(void**)s = c.s)
    // A sum that lands in pinned host memory tells the host a number of rows (`tf.where`,
    // `tf.unique`): PRETENDED_COUNT.
    static void answer(const char* name, void** p) {
  if (!name || !p || !strstr(name, "DeviceReduceSingleTileKernel")) return;
  int* out = *(int**)p[1];
  if (out && device_of(out) < 0 && is_pinned(out)) *out = number("PRETENDED_COUNT", 1);
}
EXPORT cudaError_t cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** p, size_t m,
                                    cudaStream_t s) {
  answer(name_of(f), p);
  return launch(name_of(f), g, b, s, p);
}
EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** p) {
  return launch(name_of(f), c->gridDim, c->blockDim, c->stream, p);
}
EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t* f, const void* s) OK(*f = handle(name_of(s)))
