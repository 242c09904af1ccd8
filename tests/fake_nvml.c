/* A driver's library with one device, GPU-1, and a slice of another; FAKE_NVML says what is wrong with it. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMED_OUT = 10, LOST = 15, MISMATCH = 18, IN_USE = 19 };

static int is(const char *mode) {
    const char *set = getenv("FAKE_NVML");
    return set && !strcmp(set, mode);
}

static void hang(void) {
    for (;;) pause();
}

static int give(unsigned *out, unsigned value) {
    if (is("lost")) return LOST;
    *out = is("lying") ? UINT32_MAX : value;
    return OK;
}

static int give64(uint64_t *out, uint64_t value) {
    if (is("lost")) return LOST;
    *out = is("lying") ? UINT64_MAX : value;
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (is("hang")) hang();
    return is("mismatch") ? MISMATCH : OK;
}

static int slice = 1, whole = 2;

int nvmlDeviceGetCount_v2(unsigned *out) { return *out = 1, OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return (void)index, *device = &whole, OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = !strcmp(uuid, "GPU-1") ? &whole : !strcmp(uuid, "MIG-2") ? &slice : 0;
    return *device ? OK : NOT_FOUND;
}

int nvmlDeviceGetPowerUsage(int *device, unsigned *out) {
    if (is("crash")) abort();
    if (is("hang later")) hang();
    if (*device == 1) return NOT_SUPPORTED;
    return give(out, is("watts") ? 300 : 300000);
}

/* 300 W since the machine's start */
int nvmlDeviceGetTotalEnergyConsumption(int *device, uint64_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t millijoules = (now.tv_sec * 1000ull + now.tv_nsec / 1000000) * 300;
    if (*device == 1) return NOT_SUPPORTED;
    return give64(out, is("watts") ? millijoules / 1000 : millijoules);
}

int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *out) { return (void)device, give(out, kind == 1 ? 1980 : 3201); }
int nvmlDeviceGetTemperature(void *device, int kind, unsigned *out) { return (void)device, (void)kind, give(out, 61); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *out) { return (void)device, give(out, 5); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *out) { return (void)device, give(out, 16); }
int nvmlDeviceGetPcieReplayCounter(void *device, unsigned *out) { return (void)device, give(out, 3); }

#ifndef OLD
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, uint64_t *out) {
    return (void)device, (void)kind, (void)counter, give64(out, 0);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *device, uint64_t *out) {
    return (void)device, give64(out, is("throttled") ? 0x4 | 0x40 | 0x4000 : 0);
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *out) {
    (void)device;
    if (link >= 18) return NOT_SUPPORTED;
    return give(out, link != 7);
}

/* GPM, with the tensor cores active half of the time; its counters are renewed every 100 ms */
struct sample {
    uint64_t at, active;
};
struct metric {
    unsigned id, status;
    double value;
    const char *names[3];
};
struct wanted {
    unsigned version, count;
    struct sample *from, *to;
    struct metric metrics[];
};
struct support {
    unsigned version, is_supported;
};
struct process {
    unsigned pid;
    uint64_t memory;
    unsigned instances[2];
};

int nvmlDeviceIsMigDeviceHandle(int *device, unsigned *out) { return *out = *device == 1, OK; }
int nvmlDeviceGetMigMode(int *device, unsigned *now, unsigned *next) {
    if (is("cannot be divided")) return NOT_SUPPORTED;
    return (void)device, *now = *next = is("divided"), OK;
}
int nvmlGpmQueryDeviceSupport(void *device, struct support *out) {
    (void)device;
    return out->is_supported = out->version == 1 && !is("ampere"), OK;
}
int nvmlGpmSampleAlloc(struct sample **out) {
    return is("no samples") ? NOT_SUPPORTED : (*out = calloc(1, sizeof **out), OK);
}
int nvmlGpmSampleGet(int *device, struct sample *out) {
    static int taken;
    struct timespec now;
    taken++;
    if (is("lost") || (is("gone") && taken > 2)) return LOST;
    if ((is("no longer") && taken > 2) || *device == 1) return NOT_SUPPORTED;
    if (is("in use") && taken % 2) return IN_USE;
    clock_gettime(CLOCK_MONOTONIC, &now);
    out->at = is("still") ? 1 : now.tv_sec * 10ull + now.tv_nsec / 100000000;
    out->active = out->at * (is("lying") ? 3 : 1);
    return OK;
}
int nvmlGpmMetricsGet(struct wanted *wanted) {
    for (unsigned n = 0; n < wanted->count; n++) {
        struct metric *metric = &wanted->metrics[n];
        metric->status = is("no tensor") || metric->id != 5 ? NOT_SUPPORTED : OK;
        double span = wanted->to->at - wanted->from->at;
        metric->value = metric->status ? 0 : span ? 50 * (wanted->to->active - wanted->from->active) / span : NAN;
    }
    return wanted->version == 1 ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *out) {
    unsigned room = *count;
    (void)device;
    *count = is("shared") ? 2 : !is("hidden");
    if (room < *count) return SMALL;
    for (unsigned n = 0; n < *count; n++) out[n] = (struct process){.pid = 100 + n};
    return OK;
}

struct event {
    void *device;
    uint64_t type, data;
};

int nvmlEventSetCreate(void **set) { return *set = "set", OK; }
int nvmlEventSetFree(void *set) { return (void)set, OK; }
int nvmlDeviceRegisterEvents(void *device, uint64_t types, void *set) {
    return (void)device, (void)types, (void)set, is("no events") ? NOT_SUPPORTED : OK;
}
int nvmlEventSetWait_v2(void *set, struct event *out, unsigned timeout_ms) {
    static int waiting = 2;
    (void)set;
    if (timeout_ms) hang();
    if (!is("xid") || !waiting) return TIMED_OUT;
    out->data = waiting-- == 2 ? 63 : 79;
    return OK;
}
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, uint64_t *out) { return (void)device, give64(out, 0x1); }
#endif
