/* The C API from C: results against attention spelled out in double, refusals, and many threads at once. Prints a line
 * per failure; the exit code counts them. */
#include <math.h>
#include <pthread.h>
#include <sinter/sinter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;
#define EXPECT(condition, ...)                                \
  do {                                                        \
    if (!(condition)) {                                       \
      printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);  \
      printf(__VA_ARGS__);                                    \
      printf("\n");                                           \
      __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);     \
    }                                                         \
  } while (0)

enum { B = 2, H = 4, KV = 2, NQ = 37, NK = 70, D = 20, OFFSET = NK - NQ };
enum { QS = B * H * NQ * D, KS = B * KV * NK * D, ROWS = B * H * NQ };

/* Tensors lie with a gap of three elements behind every row, full of NaN. */
enum { ROW = D + 3, QP = B * H * NQ * ROW, KP = B * KV * NK * ROW };
typedef struct Case {
  float q[QP], k[KP], v[KP], o[QP], d_o[QP], dq[QP], dk[KP], dv[KP], lse[ROWS];
  sinter_attention a;
} Case;

static sinter_tensor spaced(float* data, int64_t heads, int64_t n) {
  sinter_tensor t = sinter_tensor_contiguous(data, SINTER_F32, B, heads, n, D);
  t.strides[2] = ROW, t.strides[1] = n * ROW, t.strides[0] = heads * n * ROW;
  return t;
}
static float value(unsigned* seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(*seed >> 8) / (float)(1 << 23) - 1;
}
static void fill(float* p, int n, int values, unsigned* seed) {
  for (int i = 0; i < n; ++i) p[i] = values && i % ROW < D ? value(seed) : NAN;
}

static Case* new_case(unsigned seed) {
  Case* c = malloc(sizeof(Case));
  fill(c->q, QP, 1, &seed), fill(c->k, KP, 1, &seed), fill(c->v, KP, 1, &seed), fill(c->d_o, QP, 1, &seed);
  fill(c->o, QP, 0, &seed), fill(c->dq, QP, 0, &seed), fill(c->dk, KP, 0, &seed), fill(c->dv, KP, 0, &seed);
  sinter_attention a = SINTER_ATTENTION_INIT;
  a.q = spaced(c->q, H, NQ), a.k = spaced(c->k, KV, NK), a.v = spaced(c->v, KV, NK), a.o = spaced(c->o, H, NQ);
  a.d_o = spaced(c->d_o, H, NQ), a.dq = spaced(c->dq, H, NQ);
  a.dk = spaced(c->dk, KV, NK), a.dv = spaced(c->dv, KV, NK);
  a.lse = c->lse;
  a.causal = 1, a.causal_offset = OFFSET;
  c->a = a;
  return c;
}

/* The same in double. Gradients of k and v are summed over the heads that share them. */
typedef struct Exact {
  double o[QP], lse[ROWS], dq[QP], dk[KP], dv[KP];
} Exact;
static Exact* exact_of(const Case* c) {
  Exact* e = calloc(1, sizeof(Exact));
  double scale = c->a.scale != 0 ? c->a.scale : 1 / sqrt((double)D), p[NK];
  for (int row = 0; row < ROWS; ++row) {
    int head = row / NQ, i = row % NQ, kv = head / H * KV + head % H / (H / KV);
    int seen = c->a.causal ? i + (int)c->a.causal_offset + 1 : NK;
    seen = seen < 0 ? 0 : seen > NK ? NK : seen;
    const float *q = c->q + row * ROW, *grad = c->d_o + row * ROW, *k = c->k + kv * NK * ROW, *v = c->v + kv * NK * ROW;
    double sum = 0, delta = 0;
    for (int j = 0; j < seen; ++j) {
      double s = 0;
      for (int d = 0; d < D; ++d) s += (double)q[d] * k[j * ROW + d];
      sum += p[j] = exp(scale * s);
    }
    e->lse[row] = log(sum);
    for (int j = 0; j < seen; ++j)
      for (int d = 0; d < D; ++d) e->o[row * ROW + d] += p[j] / sum * v[j * ROW + d];
    for (int d = 0; d < D; ++d) delta += e->o[row * ROW + d] * grad[d];
    for (int j = 0; j < seen; ++j) {
      double dp = 0;
      for (int d = 0; d < D; ++d) dp += (double)grad[d] * v[j * ROW + d];
      double ds = p[j] / sum * (dp - delta) * scale;
      for (int d = 0; d < D; ++d) {
        e->dq[row * ROW + d] += ds * k[j * ROW + d];
        e->dk[(kv * NK + j) * ROW + d] += ds * q[d];
        e->dv[(kv * NK + j) * ROW + d] += p[j] / sum * grad[d];
      }
    }
  }
  return e;
}

/* Near the expected values, and the gaps untouched. */
static void expect_near(const char* what, const float* x, const double* e, int n) {
  double worst = 0;
  int touched = 0;
  for (int i = 0; i < n; ++i)
    if (i % ROW >= D) touched += x[i] == x[i];
    else if (!(fabs(x[i] - e[i]) <= worst)) worst = fabs(x[i] - e[i]);
  EXPECT(worst < 2e-5, "%s is off by %g", what, worst);
  EXPECT(touched == 0, "%s: %d elements of the gaps were written", what, touched);
}

static void check_case(Case* c) {
  Exact* e = exact_of(c);
  EXPECT(sinter_attention_forward(&c->a) == SINTER_OK, "%s", sinter_last_error());
  EXPECT(sinter_attention_backward(&c->a) == SINTER_OK, "%s", sinter_last_error());
  EXPECT(strcmp(sinter_last_error(), "") == 0, "%s", sinter_last_error());
  expect_near("o", c->o, e->o, QP), expect_near("dq", c->dq, e->dq, QP);
  expect_near("dk", c->dk, e->dk, KP), expect_near("dv", c->dv, e->dv, KP);
  for (int i = 0; i < ROWS; ++i)
    EXPECT(e->lse[i] == c->lse[i] || fabs(e->lse[i] - c->lse[i]) < 1e-5, "lse %d: %g", i, c->lse[i]);
  free(e);
}

static void test_results(void) {
  for (int variant = 0; variant < 6; ++variant) {
    Case* c = new_case((unsigned)variant + 1);
    if (variant == 1) c->a.causal = 0;
    if (variant == 2) c->a.kernel = SINTER_KERNEL_TILED, c->a.tile = 16;
    if (variant == 3) c->a.scale = 0.7;
    if (variant == 4) c->a.causal_offset = -10; /* some queries see nothing */
    if (variant == 5) c->a.causal_offset = INT64_MAX;
    if (variant == 5) {
      sinter_attention a = c->a;
      c->a.causal_offset = NK;
      Exact* e = exact_of(c);
      EXPECT(sinter_attention_forward(&a) == SINTER_OK, "%s", sinter_last_error());
      expect_near("o", c->o, e->o, QP);
      free(e);
    } else {
      check_case(c);
    }
    free(c);
  }
}

static void test_workspace(void) {
  Case *own = new_case(9), *given = new_case(9);
  size_t bytes = 0;
  EXPECT(sinter_attention_backward_workspace(&own->a, &bytes) == SINTER_OK, "%s", sinter_last_error());
  EXPECT(bytes > 0, "%zu bytes", bytes);
  check_case(own);
  given->a.workspace = malloc(bytes);
  given->a.workspace_bytes = bytes;
  check_case(given);
  EXPECT(memcmp(own->dk, given->dk, sizeof own->dk) == 0, "the workspace changed the result");
  given->a.workspace_bytes = bytes - 1;
  EXPECT(sinter_attention_backward(&given->a) == SINTER_INVALID_ARGUMENT, "a small workspace was taken");
  EXPECT(strstr(sinter_last_error(), "workspace"), "%s", sinter_last_error());
  void* whole = given->a.workspace;
  given->a.workspace = (char*)whole + 4, given->a.workspace_bytes = SIZE_MAX;
  EXPECT(sinter_attention_backward(&given->a) == SINTER_INVALID_ARGUMENT && strstr(sinter_last_error(), "16 bytes"),
         "%s", sinter_last_error());
  free(whole), free(own), free(given);
}

static void refuses(const sinter_attention* a, int backward, int status, const char* word) {
  int got = backward ? sinter_attention_backward(a) : sinter_attention_forward(a);
  EXPECT(got == status && strstr(sinter_last_error(), word), "status %d, \"%s\" does not mention \"%s\"", got,
         sinter_last_error(), word);
}
static void test_refusals(void) {
  Case* c = new_case(3);
  sinter_attention a;
  refuses(NULL, 0, SINTER_INVALID_ARGUMENT, "null pointer");
  a = c->a, a.struct_size = 0, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "struct_size");
  a = c->a, a.q.data = NULL, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "q: its data");
  a = c->a, a.lse = NULL, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "lse");
  a = c->a, a.k.dims[3] = 8, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "(2, 2, 70, 8)");
  a = c->a, a.v.dtype = SINTER_BF16, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "bf16");
  a = c->a, a.q.dtype = 77, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "77");
  a = c->a, a.q.strides[3] = 2, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "last stride");
  a = c->a, a.k.strides[1] = -1, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "negative");
  a = c->a, a.o.strides[0] = 0, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "overwrite");
  a = c->a, a.k.dims[1] = a.v.dims[1] = 3, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "4 query heads");
  a = c->a, a.scale = NAN, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "scale");
  a = c->a, a.device = 5, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "sinter_device");
  a = c->a, a.kernel = SINTER_KERNEL_PORTABLE, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "portable");
  a = c->a, a.kernel = SINTER_KERNEL_TILED, a.tile = 4096, refuses(&a, 0, SINTER_INVALID_ARGUMENT, "bytes");
  a = c->a, a.d_o.dims[2] = 1, refuses(&a, 1, SINTER_INVALID_ARGUMENT, "d_o");
  a = c->a, a.dk.data = NULL, refuses(&a, 1, SINTER_INVALID_ARGUMENT, "dk");
  a = c->a, a.q.dims[0] = a.q.dims[1] = a.q.dims[2] = (int64_t)1 << 30;
  refuses(&a, 0, SINTER_INVALID_ARGUMENT, "too large");
  free(c);
}

/* No queries: nothing to do, and no error. */
static void test_empty(void) {
  Case* c = new_case(5);
  sinter_attention a = c->a;
  a.q = a.o = a.d_o = a.dq = sinter_tensor_contiguous(c->a.q.data, (sinter_dtype)c->a.q.dtype, c->a.q.dims[0],
                                                      c->a.q.dims[1], 0, c->a.q.dims[3]);
  EXPECT(sinter_attention_forward(&a) == SINTER_OK, "%s", sinter_last_error());
  EXPECT(sinter_attention_backward(&a) == SINTER_OK, "%s", sinter_last_error());
  free(c);
}

/* A program built with a later header, whose struct is longer: taken as long as what we do not know is 0. */
static void test_struct_size(void) {
  struct {
    sinter_attention a;
    int64_t later[2];
  } longer;
  Case* c = new_case(4);
  memset(&longer, 0, sizeof longer);
  longer.a = c->a;
  longer.a.struct_size = sizeof longer;
  EXPECT(sinter_attention_forward(&longer.a) == SINTER_OK, "%s", sinter_last_error());
  longer.later[1] = 1;
  refuses(&longer.a, 0, SINTER_INVALID_ARGUMENT, "too old");
  free(c);
}

static void* many_calls(void* seed) {
  for (unsigned i = 0; i < 5; ++i) {
    Case *c = new_case((unsigned)(size_t)seed * 100 + i), *wrong = new_case(1);
    check_case(c);
    wrong->a.q.dims[3] = 5 + (size_t)seed; /* each thread has an error of its own */
    char word[32];
    snprintf(word, sizeof word, ", %d)", 5 + (int)(size_t)seed);
    refuses(&wrong->a, 0, SINTER_INVALID_ARGUMENT, word);
    free(c), free(wrong);
  }
  return NULL;
}
static void test_threads(void) {
  pthread_t threads[4];
  for (size_t i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, many_calls, (void*)i);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}

int main(void) {
  EXPECT(sinter_version() == SINTER_VERSION, "%d", sinter_version());
  test_results();
  test_workspace();
  test_refusals();
  test_empty();
  test_struct_size();
  test_threads();
  printf("%d failures\n", failures);
  return failures != 0;
}
