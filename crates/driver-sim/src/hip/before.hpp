// Built-ins of AMD's compiler, for one work-item on the host; `after.hpp` runs the work-items.
//
// Written from LLVM's "User Guide for AMDGPU Backend" and the ISA documents, independently of the renderer. Inexact hardware functions are
// inexact here too, as far as the documents specify it.
#include <ucontext.h>
#include <stdlib.h>

namespace host {
struct Item {
    ucontext_t context;
    char *stack;
    unsigned id[3], lane, wave, value, result, state;
    int from;
};
static Item *current;
static unsigned group_id[3], group_size[3], grid_size[3], wave_size;
void wait(unsigned state);
static unsigned exchange(int address, int value);
static float root(float x);
static double reciprocal_root(double x);
enum { READY, AT_BARRIER, AT_SHUFFLE, DONE };

template <class T> T add(T *at, T x) { T old = *at; *at = old + x; return old; }
static inline int add(int *at, int x) { int old = *at; *at = (int)((unsigned)old + (unsigned)x); return old; }
static inline long long add(long long *at, long long x) {
    long long old = *at;
    *at = (long long)((unsigned long long)old + (unsigned long long)x);
    return old;
}
template <class T> T least(T *at, T x) { T old = *at; if (x < old) *at = x; return old; }
template <class T> T most(T *at, T x) { T old = *at; if (x > old) *at = x; return old; }
template <class T> T exchange(T *at, T x) { T old = *at; *at = x; return old; }
template <class T> bool compare(T *at, T *seen, T x) {
    if (*at == *seen) { *at = x; return true; }
    *seen = *at;
    return false;
}
}

#define __builtin_amdgcn_workitem_id_x() (host::current->id[0])
#define __builtin_amdgcn_workitem_id_y() (host::current->id[1])
#define __builtin_amdgcn_workitem_id_z() (host::current->id[2])
#define __builtin_amdgcn_workgroup_id_x() (host::group_id[0])
#define __builtin_amdgcn_workgroup_id_y() (host::group_id[1])
#define __builtin_amdgcn_workgroup_id_z() (host::group_id[2])
#define __builtin_amdgcn_workgroup_size_x() (host::group_size[0])
#define __builtin_amdgcn_workgroup_size_y() (host::group_size[1])
#define __builtin_amdgcn_workgroup_size_z() (host::group_size[2])
#define __builtin_amdgcn_grid_size_x() (host::grid_size[0])
#define __builtin_amdgcn_grid_size_y() (host::grid_size[1])
#define __builtin_amdgcn_grid_size_z() (host::grid_size[2])
#define __builtin_amdgcn_mbcnt_lo(mask, more) (__builtin_popcount((mask) & (host::current->lane < 32 ? (1u << host::current->lane) - 1 : ~0u)) + (more))
#define __builtin_amdgcn_mbcnt_hi(mask, more) (__builtin_popcount((mask) & (host::current->lane < 32 ? 0u : (1u << (host::current->lane - 32)) - 1)) + (more))
#define __builtin_amdgcn_fence(order, scope)
#define __builtin_amdgcn_s_barrier() host::wait(host::AT_BARRIER)
#define __builtin_amdgcn_ds_bpermute(address, value) ((int)host::exchange((int)(address), (int)(value)))
#define __builtin_amdgcn_sqrtf(x) host::root(x)
#define __builtin_amdgcn_rsq(x) host::reciprocal_root(x)
#define __HIP_MEMORY_SCOPE_AGENT 4
#define amdgpu_flat_work_group_size(least, most)
#define __hip_atomic_fetch_add(at, x, order, scope) host::add(at, x)
#define __hip_atomic_fetch_min(at, x, order, scope) host::least(at, x)
#define __hip_atomic_fetch_max(at, x, order, scope) host::most(at, x)
#define __hip_atomic_exchange(at, x, order, scope) host::exchange(at, x)
#define __hip_atomic_compare_exchange_strong(at, seen, x, success, failure, scope) host::compare(at, seen, x)

// Declarations of hiprtc for handwritten programs.
namespace host {
struct Three { unsigned x, y, z; };
static inline Three three(const unsigned *axes) { return {axes[0], axes[1], axes[2]}; }
}
#define __global__ __attribute__((global))
#define threadIdx host::three(host::current->id)
#define blockIdx host::three(host::group_id)
#define blockDim host::three(host::group_size)
