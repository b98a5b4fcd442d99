// Runs the work-items of a launch: one work-group after the other, each work-item on its own stack, because it can wait for others.
namespace host {
static ucontext_t scheduler;
static void **arguments;
static const unsigned STACK = 64 << 10;

void wait(unsigned state) {
    current->state = state;
    swapcontext(&current->context, &scheduler);
}

static unsigned exchange(int address, int value) {
    current->value = (unsigned)value;
    current->from = (address >> 2) & (int)(wave_size - 1);
    wait(AT_SHUFFLE);
    return current->result;
}

// The hardware's square root has an error of at most one unit in the last place, and flushes denormals to zero.
static float root(float x) {
    if (x > -0x1p-126f && x < 0x1p-126f) return __builtin_copysignf(0.0f, x);
    float y = __builtin_sqrtf(x);
    unsigned bits;
    __builtin_memcpy(&bits, &y, 4);
    unsigned which;
    __builtin_memcpy(&which, &x, 4);
    if (y > 0.0f && y < __builtin_inff()) bits += which % 3 - 1;
    __builtin_memcpy(&y, &bits, 4);
    return y;
}

// The hardware's reciprocal square root has about 24 bits, and flushes denormals to zero.
static double reciprocal_root(double x) {
    if (x > -0x1p-1022 && x < 0x1p-1022) return __builtin_copysign(__builtin_inf(), x);
    unsigned long long which;
    __builtin_memcpy(&which, &x, 8);
    return 1.0 / __builtin_sqrt(x) * (1.0 + ((double)(which % 5) - 2.0) * 0x1p-26);
}

template <class T, T... I> struct sequence {};
template <class... P, int... I> void call(void (*kernel)(P...), sequence<int, I...>) { kernel(*(P *)arguments[I]...); }
template <class... P> void call_with_arguments(void (*kernel)(P...)) {
    call(kernel, __make_integer_seq<sequence, int, sizeof...(P)>());
}

static void run() {
    call_with_arguments(ENTRY);
    wait(DONE);
}

// Returns true if all unfinished work-items of a wavefront were at a shuffle; then each has received its value.
static bool exchanged(Item *items, unsigned count, unsigned wave) {
    unsigned waiting = 0;
    for (unsigned i = 0; i < count; i++) {
        if (items[i].wave != wave || items[i].state == DONE) continue;
        if (items[i].state != AT_SHUFFLE) return false;
        waiting++;
    }
    for (unsigned i = 0; i < count && waiting; i++) {
        if (items[i].wave != wave || items[i].state != AT_SHUFFLE) continue;
        unsigned from = wave * wave_size + (unsigned)items[i].from;
        // Lanes that do not exist have no value.
        items[i].result = from < count && items[from].state == AT_SHUFFLE ? items[from].value : 0;
    }
    for (unsigned i = 0; i < count && waiting; i++) {
        if (items[i].wave == wave && items[i].state == AT_SHUFFLE) items[i].state = READY;
    }
    return waiting != 0;
}

// Runs a work-group; returns false on deadlock.
static bool run_group(Item *items, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        Item &item = items[i];
        item.id[0] = i % group_size[0];
        item.id[1] = i / group_size[0] % group_size[1];
        item.id[2] = i / (group_size[0] * group_size[1]);
        item.lane = i % wave_size;
        item.wave = i / wave_size;
        item.state = READY;
        getcontext(&item.context);
        item.context.uc_stack.ss_sp = item.stack;
        item.context.uc_stack.ss_size = STACK;
        item.context.uc_link = &scheduler;
        makecontext(&item.context, run, 0);
    }
    for (;;) {
        bool ran = false;
        unsigned done = 0, waiting = 0;
        // In reverse order: no kernel may depend on the order.
        for (unsigned i = count; i-- > 0;) {
            if (items[i].state != READY) continue;
            ran = true;
            current = &items[i];
            swapcontext(&scheduler, &current->context);
        }
        for (unsigned wave = 0; wave * wave_size < count; wave++) ran |= exchanged(items, count, wave);
        for (unsigned i = 0; i < count; i++) {
            done += items[i].state == DONE;
            waiting += items[i].state == AT_BARRIER;
        }
        if (done == count) return true;
        if (waiting && waiting + done == count) {
            for (unsigned i = 0; i < count; i++) {
                if (items[i].state == AT_BARRIER) items[i].state = READY;
            }
        } else if (!ran) {
            return false;
        }
    }
}
}

// Launches work-groups with a wavefront size; returns 0 on success, 1 on deadlock.
extern "C" int panoply_launch(const unsigned *groups, const unsigned *size, unsigned wave, void **arguments) {
    using namespace host;
    host::arguments = arguments;
    wave_size = wave;
    unsigned count = size[0] * size[1] * size[2];
    for (int axis = 0; axis < 3; axis++) {
        group_size[axis] = size[axis];
        grid_size[axis] = groups[axis] * size[axis];
    }
    Item *items = (Item *)calloc(count, sizeof(Item));
    char *stacks = (char *)malloc((size_t)count * STACK);
    bool well = items && stacks;
    for (unsigned i = 0; well && i < count; i++) items[i].stack = stacks + (size_t)i * STACK;
    for (group_id[2] = 0; group_id[2] < groups[2]; group_id[2]++) {
        for (group_id[1] = 0; group_id[1] < groups[1]; group_id[1]++) {
            for (group_id[0] = 0; group_id[0] < groups[0]; group_id[0]++) well = well && run_group(items, count);
        }
    }
    free(stacks);
    free(items);
    return well ? 0 : 1;
}
