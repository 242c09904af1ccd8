/* A driver's library with two cards; FAKE_NVML: "pair" (4 NVLinks between them), "switch", "pcie" (no links), "busy", "refused". */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, TOO_SMALL = 7, DRIVER_NOT_LOADED = 9 };

static int is(const char *mode) {
    const char *set = getenv("FAKE_NVML");
    return set && !strcmp(set, mode);
}
static int has_links(void) { return is("pair") || is("switch") || is("busy"); }

static int cards[2] = {0, 1};

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
struct field {
    uint32_t id, scope;
    int64_t at, latency;
    uint32_t type, result;
    union { unsigned u; uint64_t all; } value;
};
struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};
struct usage { unsigned gpu, memory; };

int nvmlInitWithFlags(unsigned flags) { return (void)flags, is("refused") ? NO_PERMISSION : is("no driver") ? DRIVER_NOT_LOADED : OK; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 2, OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { return *device = &cards[index], OK; }
int nvmlDeviceGetName(int *card, char *name, unsigned room) { return (void)card, strncpy(name, "NVIDIA A100-SXM4-40GB", room), OK; }
int nvmlDeviceGetUUID(int *card, char *name, unsigned room) { return strncpy(name, *card ? "GPU-b" : "GPU-a", room), OK; }
int nvmlDeviceGetPciInfo_v3(int *card, struct pci *out) {
    memset(out, 0, sizeof *out);
    out->bus = 16 + *card;
    return OK;
}
int nvmlDeviceGetNvLinkState(int *card, unsigned link, unsigned *out) {
    (void)card;
    if (!has_links() || link >= 12) return NOT_SUPPORTED;
    return *out = link < 4, OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(int *card, unsigned link, struct pci *out) {
    (void)link;
    memset(out, 0, sizeof *out);
    out->bus = is("switch") ? 99 : 16 + !*card;
    return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(int *card, unsigned link, unsigned *out) { return (void)card, (void)link, *out = is("switch") ? 2 : 0, OK; }
int nvmlDeviceGetFieldValues(int *card, int count, struct field *fields) {
    (void)card;
    for (int place = 0; place < count; place++) {
        fields[place].result = has_links() && fields[place].id == 90 ? OK : NOT_SUPPORTED;
        fields[place].type = 1;
        fields[place].value.u = 25781;
    }
    return OK;
}
int nvmlDeviceGetCurrPcieLinkGeneration(int *card, unsigned *out) { return (void)card, *out = 4, OK; }
int nvmlDeviceGetCurrPcieLinkWidth(int *card, unsigned *out) { return (void)card, *out = 16, OK; }
int nvmlDeviceGetMaxClockInfo(int *card, int kind, unsigned *out) { return (void)card, (void)kind, *out = 1215, OK; }
int nvmlDeviceGetClockInfo(int *card, int kind, unsigned *out) { return (void)card, (void)kind, *out = 1095, OK; }
int nvmlDeviceGetMemoryBusWidth(int *card, unsigned *out) { return (void)card, *out = 5120, OK; }
int nvmlDeviceGetPowerUsage(int *card, unsigned *out) { return (void)card, *out = 60000, OK; }
int nvmlDeviceGetUtilizationRates(int *card, struct usage *out) { return out->memory = 0, out->gpu = is("busy") && *card ? 43 : 5, OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(int *card, unsigned *count, struct process *out) {
    if (!is("busy") || !*card) return *count = 0, OK;
    if (!out) return *count = 1, TOO_SMALL;
    *out = (struct process){4321, 3100000000ull, 0, 0};
    return *count = 1, OK;
}
int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned room) { return (void)pid, strncpy(name, "python", room), OK; }
int nvmlDeviceGetTopologyCommonAncestor(int *one, int *other, unsigned *out) { return (void)one, (void)other, *out = 50, OK; }
int nvmlDeviceGetP2PStatus(int *one, int *other, int what, unsigned *out) { return (void)one, (void)other, (void)what, *out = is("pcie") ? 1 : 0, OK; }
