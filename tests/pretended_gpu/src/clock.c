// The virtual clock: what the recorded commands would take on a machine that is described by
// numbers.
//
// A command gets its begin and end when it is issued: after its stream's last command, after the
// host thread's virtual time, and when its engine or link is free. Host code takes no virtual time
// but for each launch, copy and wake-up. Virtual time stands still while any host thread runs; once
// all sleep, it jumps to the next moment that one of them waits for. So TensorFlow's own executor
// decides what waits for what, and neither the speed nor the load of this machine matters.
#include "common.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

// The machine, set by pretended_machine(); MACHINE in machines.py has the same order.
static struct {
  double launch_host, launch_device, peak, efficiency, sms, memory, bytes_per_thread, rnn_step,
      link, latency, pageable, peer, peer_latency, nvlink, host_memory, wake, nccl, nccl_latency;
} m;
_Atomic int clock_on;
static double now;  // Virtual seconds. Only the clock's thread advances it.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t tick = PTHREAD_COND_INITIALIZER;
static _Atomic long issued;  // Any call that shows that the host is alive.
#define SLACK 20e-6          // A thread runs ahead of the clock by so much at most.
#define TIES 1e-6            // What is nearer than this happens together.

typedef struct {
  pid_t id;
  double time;
  int queries, ready;
} Host;  // One for each host thread.
#define MAX_HOSTS 4096
static Host hosts[MAX_HOSTS];
static int num_hosts;
static __thread Host* self;
static Host* host(void) {
  if (!self) {
    pthread_mutex_lock(&lock);
    self = &hosts[num_hosts < MAX_HOSTS - 1 ? num_hosts++ : MAX_HOSTS - 1];
    self->id = syscall(SYS_gettid);
    pthread_mutex_unlock(&lock);
  }
  if (self->time < now) self->time = now;
  return self;
}
double clock_thread(void) { return host()->time; }

// ---- Engines and links: intervals in which they are busy, in order.
enum { COMPUTE, UP, DOWN, OUT, IN, ENGINES };
typedef struct {
  double begin, end;
} Span;
typedef struct {
  Span* spans;
  int n, room;
} Engine;
static Engine engines[MAX_DEVICES][ENGINES], host_memory;

static void insert(Engine* e, int at, double begin, double end) {
  if (e->n == e->room) e->spans = realloc(e->spans, sizeof(Span) * (e->room = 2 * e->room + 64));
  memmove(e->spans + at + 1, e->spans + at, sizeof(Span) * (e->n++ - at));
  e->spans[at] = (Span){begin, end};
}
// Returns when a free stretch of so many seconds begins, not before `from`; takes it.
static double reserve(Engine* e, double from, double seconds) {
  int old = 0;
  while (old < e->n && e->spans[old].end < now - 1) old++;  // A second ago: nobody asks any more.
  if (old > 1024) {
    memmove(e->spans, e->spans + old, sizeof(Span) * (e->n -= old));
  }
  int i = e->n;
  while (i > 0 && e->spans[i - 1].end > from) i--;
  for (; i < e->n && e->spans[i].begin < from + seconds; i++)
    if (e->spans[i].end > from) from = e->spans[i].end;
  insert(e, i, from, from + seconds);
  return from;
}

// ---- What a command takes.
static double gemm_seconds(const Command* c) {
  double tiles = 1, split = 1;
  if (c->kind == GEMM) {
    tiles =
        ((c->dims[0] + 63) / 64) * (double)((c->dims[1] + 63) / 64) * (c->dims[3] ? c->dims[3] : 1);
    split = c->dims[2] > 512 ? (c->dims[2] < 8192 ? c->dims[2] / 512.0 : 16) : 1;
  } else tiles = m.sms;
  double used = tiles * split / m.sms;
  double size = c->dims[4] && c->dims[4] <= 2 ? 0.5 : 1;  // Half precision: twice as fast.
  double busy = c->flops * size / (m.peak * m.efficiency * (used < 1 ? used : 1)),
         move = c->bytes / m.memory;
  return busy > move ? busy : move;
}
static double kernel_seconds(const Command* c) {
  double seconds = c->kind == GEMM || c->kind == CONV ? gemm_seconds(c)
                   : c->kind == RNN ? c->flops / (m.peak * m.efficiency) + c->dims[0] * m.rnn_step
                                    : c->bytes / m.memory;
  return seconds > m.launch_device ? seconds : m.launch_device;
}
// Sets begin and end of a command on its engines.
static void take(const Command* c, double from, double* begin, double* end) {
  int d = c->device;
  double seconds;
  switch (c->kind) {
    case H2D:
    case D2H:
      seconds = c->bytes / (c->pinned ? m.link : m.pageable);
      *begin = reserve(&engines[d][c->kind == H2D ? DOWN : UP], from, seconds + 1e-6);
      *end = *begin + seconds + m.latency;
      double shared = c->bytes / m.host_memory, at = reserve(&host_memory, *begin, shared);
      if (at + shared + m.latency > *end) *end = at + shared + m.latency;
      break;
    case P2P:
      seconds = c->bytes / m.peer;
      *begin = reserve(&engines[d][m.nvlink ? OUT : UP], from, seconds);
      *begin = reserve(&engines[c->peer][m.nvlink ? IN : DOWN], *begin, seconds);
      *end = *begin + seconds + m.peer_latency;
      break;
    case D2D:
    case MEMSET:
      seconds = m.launch_device + (c->kind == D2D ? 2 : 1) * c->bytes / m.memory;
      *begin = reserve(&engines[d][COMPUTE], from, seconds);
      *end = *begin + seconds;
      break;
    default:
      seconds = kernel_seconds(c);
      *begin = reserve(&engines[d][COMPUTE], from, seconds);
      *end = *begin + seconds;
  }
}
static int takes_time(int kind) { return kind <= MEMSET; }

void command(Command c) {
  if (c.kind == LAUNCH) {
    double threads = 1;
    for (int i = 0; i < 3; i++) threads *= (double)c.grid[i] * c.block[i];
    if (!c.bytes) c.bytes = threads * (m.bytes_per_thread ? m.bytes_per_thread : 12);
  }
  issued++;
  if (!clock_on || !takes_time(c.kind)) {
    log_add(&c, clock_on ? clock_thread() : 0, 0, 0);
    return;
  }
  Host* h = host();
  h->queries = 0;
  h->time += m.launch_host;
  if (c.kind == H2D && !c.pinned) h->time += c.bytes / m.pageable;  // Staged by the host.
  pthread_mutex_lock(&lock);
  Stream* s = stream_of(c.stream);
  double begin, end, from = h->time > s->ready ? h->time : s->ready;
  take(&c, from, &begin, &end);
  s->ready = end;
  log_add(&c, h->time, begin, end);
  pthread_mutex_unlock(&lock);
  if (c.kind == D2H && !c.pinned) clock_sync(end);
  else if (h->time > now + SLACK) clock_wait(h->time);
}

// ---- Waiting: a list of moments.
#define MAX_WAITS 8192
static double waits[MAX_WAITS];
static int num_waits;
static CudaEvent* asked[MAX_WAITS];  // Events that the host asked for too early.
static int num_asked;
static void wait_locked(double until) {
  int i = num_waits++;
  waits[i] = until;
  while (now < until && clock_on) pthread_cond_wait(&tick, &lock);
  for (i = 0; waits[i] != until; i++) {
  }
  waits[i] = waits[--num_waits];
}
void clock_wait(double until) {
  Host* h = host();
  pthread_mutex_lock(&lock);
  if (now < until) wait_locked(until);
  pthread_mutex_unlock(&lock);
  if (h->time < until) h->time = until;
}
void clock_sync(double until) {
  host()->queries = 0;
  clock_wait((until > host()->time ? until : host()->time) + m.wake);
}
int clock_query(CudaEvent* e) {
  Host* h = host();
  pthread_mutex_lock(&lock);
  int ready = e->time + m.wake <= now;
  if (ready && e->outstanding) {
    e->outstanding = 0;
    for (int i = 0; i < num_asked; i++)
      if (asked[i] == e) {
        asked[i] = asked[--num_asked];
        break;
      }
  } else if (!ready && !e->outstanding && num_asked < MAX_WAITS) {
    e->outstanding = 1;
    asked[num_asked++] = e;
  }
  h->queries++;
  h->ready = ready;
  pthread_mutex_unlock(&lock);
  return ready;
}
void clock_forget(CudaEvent* e) {
  pthread_mutex_lock(&lock);
  for (int i = 0; e->outstanding && i < num_asked; i++)
    if (asked[i] == e) {
      asked[i] = asked[--num_asked];
      break;
    }
  e->outstanding = 0;
  pthread_mutex_unlock(&lock);
}

// ---- Host functions of streams, each at its moment.
typedef struct Call {
  double at;
  void (*f)(void*);
  void* data;
  struct Call* next;
} Call;
static Call* calls;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static void* run_calls(void* _) {
  host();
  for (;;) {
    pthread_mutex_lock(&lock);
    while (!calls) pthread_cond_wait(&called, &lock);
    Call* c = calls;  // The earliest: the list is in order.
    if (clock_on && now < c->at) {
      int i = num_waits++;
      waits[i] = c->at;
      double at = c->at;
      while (now < at && clock_on && calls == c) pthread_cond_wait(&tick, &lock);
      for (i = 0; waits[i] != at; i++) {
      }
      waits[i] = waits[--num_waits];
      pthread_mutex_unlock(&lock);
      continue;
    }
    calls = c->next;
    pthread_mutex_unlock(&lock);
    c->f(c->data);
    free(c);
  }
  return 0;
}
static void start_calls(void) {
  pthread_t t;
  pthread_create(&t, 0, run_calls, 0);
}
void clock_call(double at, void (*f)(void*), void* data) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start_calls);
  Call* c = malloc(sizeof *c);
  *c = (Call){at, f, data, 0};
  pthread_mutex_lock(&lock);
  Call** p = &calls;
  while (*p && (*p)->at <= at) p = &(*p)->next;
  c->next = *p;
  *p = c;
  pthread_cond_broadcast(&tick);
  pthread_cond_signal(&called);
  pthread_mutex_unlock(&lock);
}

// ---- Collectives: begin when the last rank has come.
typedef struct {
  char key[160];
  int come, gone;
  double from;
} Meeting;
static Meeting meetings[1024];
static pthread_cond_t met = PTHREAD_COND_INITIALIZER;
void clock_collective(const char* key, int ranks, Command c) {
  issued++;
  if (!clock_on || ranks < 2) {
    command(c);
    return;
  }
  Host* h = host();
  h->time += m.launch_host;
  pthread_mutex_lock(&lock);
  Meeting *t = 0, *room = 0;
  for (int i = 0; i < 1024 && !t; i++) {
    if (!strcmp(meetings[i].key, key)) t = &meetings[i];
    else if (!meetings[i].key[0] && !room) room = &meetings[i];
  }
  if (!t) {
    t = room;
    snprintf(t->key, sizeof t->key, "%s", key);
    t->come = t->gone = 0;
    t->from = 0;
  }
  Stream* s = stream_of(c.stream);
  double mine = h->time > s->ready ? h->time : s->ready;
  if (mine > t->from) t->from = mine;
  t->come++;
  pthread_cond_broadcast(&met);
  while (t->come < ranks) pthread_cond_wait(&met, &lock);
  double end = t->from + m.nccl_latency + 2.0 * (ranks - 1) / ranks * c.bytes / m.nccl;
  s->ready = end;
  log_add(&c, h->time, mine, end);
  if (++t->gone == ranks) t->key[0] = 0;
  pthread_mutex_unlock(&lock);
}

// ---- The clock's thread.
static pid_t clock_id;
static Host* host_of(pid_t id) {
  for (int i = 0; i < num_hosts; i++)
    if (hosts[i].id == id) return &hosts[i];
  return 0;
}
// The threads of this process, their /proc files kept open. That which ran last is asked first.
static struct {
  pid_t id;
  int file;
} tasks[MAX_HOSTS];
static int num_tasks, first_task;
static void list_tasks(void) {
  static nlink_t links;
  struct stat found;
  if (stat("/proc/self/task", &found) || found.st_nlink == links)
    return;  // One link for each thread.
  links = found.st_nlink;
  while (num_tasks) close(tasks[--num_tasks].file);
  DIR* folder = opendir("/proc/self/task");
  for (struct dirent* entry; (entry = readdir(folder)) && num_tasks < MAX_HOSTS;) {
    pid_t id = atoi(entry->d_name);
    if (!id || id == clock_id) continue;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    int file = open(path, O_RDONLY);
    if (file >= 0) {
      tasks[num_tasks].id = id;
      tasks[num_tasks++].file = file;
    }
  }
  closedir(folder);
}
// Whether every thread of the process sleeps, or only polls for what is not there.
static int asleep(void) {
  list_tasks();
  for (int i = 0; i < num_tasks; i++) {
    int at = (first_task + i) % num_tasks;
    char text[128];
    ssize_t n = pread(tasks[at].file, text, sizeof text - 1, 0);
    if (n <= 0) continue;
    text[n] = 0;
    char* state = strrchr(text, ')');
    if (!state || state[2] == 'S' || state[2] == 'Z' || state[2] == 'X') continue;
    Host* h = host_of(tasks[at].id);
    if (h && h->queries >= 3 && !h->ready) continue;
    first_task = at;
    return 0;
  }
  return 1;
}
static _Atomic long jumps;
static void* run_clock(void* _) {
  clock_id = syscall(SYS_gettid);
  for (;;) {
    if (!clock_on) {
      usleep(2000);
      continue;
    }
    long before = issued;
    int seen = 1;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < num_asked; i++)
      if (asked[i]->time + m.wake <= now) seen = 0;
    int any = num_asked + num_waits;
    pthread_mutex_unlock(&lock);
    if (!any || !seen || !asleep() || !asleep() || before != issued) {
      usleep(any ? 20 : 100);
      continue;
    }
    pthread_mutex_lock(&lock);
    double next = 1e300;
    for (int i = 0; i < num_waits; i++)
      if (waits[i] < next) next = waits[i];
    for (int i = 0; i < num_asked; i++)
      if (asked[i]->time + m.wake < next) next = asked[i]->time + m.wake;
    if (next < 1e300 && before == issued) {
      if (next > now) now = next;
      double last = now;
      for (int i = 0; i < num_waits; i++)
        if (waits[i] < now + TIES && waits[i] > last) last = waits[i];
      now = last;
      jumps++;
      pthread_cond_broadcast(&tick);
    }
    pthread_mutex_unlock(&lock);
  }
  return 0;
}
static void start_clock(void) {
  pthread_t t;
  pthread_create(&t, 0, run_clock, 0);
}
EXPORT void pretended_machine(const double* numbers, int n) {
  memset(&m, 0, sizeof m);
  memcpy(&m, numbers, n * sizeof(double));
}
EXPORT void pretended_clock(int on) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start_clock);
  pthread_mutex_lock(&lock);
  clock_on = on;
  pthread_cond_broadcast(&tick);
  pthread_cond_broadcast(&called);
  pthread_mutex_unlock(&lock);
}
EXPORT double pretended_now(void) { return clock_thread(); }
EXPORT long pretended_jumps(void) { return jumps; }
