/* What processes on the same stand-in devices have in common (FAKECUDA_SHARED): the memory that
 * each holds, in a file that all of them map, and failures that a test makes by a file of their
 * name. */
#include "cuda/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{
enum {
    N_PROCESS = 16,
    N_DEVICE = 8
};
struct process {
    pid_t pid; /* 0 or of a dead process: free */
    size_t used[N_DEVICE];
};
int file = -1;
process *all; /* [N_PROCESS] */
process *mine;

class locked
{
  public:
    locked()
    {
        if (flock(file, LOCK_EX))
            fake_die("the shared memory of the devices cannot be locked");
    }
    ~locked()
    {
        flock(file, LOCK_UN);
    }
    locked(const locked &) = delete;
    locked &operator=(const locked &) = delete;
};
} // namespace

static std::string in_folder(const char *name)
{
    return std::string(fake_setup.shared) + "/" + name;
}

static bool lives(const process &p)
{
    return p.pid && (!kill(p.pid, 0) || errno != ESRCH);
}

void fake_shared_begin(void)
{
    if (!fake_setup.shared || file >= 0)
        return;
    const size_t bytes = N_PROCESS * sizeof(process);
    file = open(in_folder("memory").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *const p = file < 0 || ftruncate(file, (off_t)bytes)
                        ? MAP_FAILED
                        : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (p == MAP_FAILED)
        fake_die("%s cannot be shared", in_folder("memory").c_str());
    all = (process *)p;
    const locked hold;
    for (int i = 0; i < N_PROCESS && !mine; i++)
        if (!lives(all[i]))
            mine = &all[i];
    if (!mine)
        fake_die("more than %d processes share the devices", N_PROCESS);
    *mine = process();
    mine->pid = getpid();
}

size_t fake_shared_used(int device)
{
    size_t sum = 0;
    for (int i = 0; all && i < N_PROCESS; i++)
        if (&all[i] != mine && lives(all[i]))
            sum += all[i].used[device];
    return sum;
}

bool fake_shared_take(int device, size_t bytes, size_t limit)
{
    if (!all)
        return true;
    const locked hold;
    if (fake_shared_used(device) + mine->used[device] + bytes > limit)
        return false;
    mine->used[device] += bytes;
    return true;
}

void fake_shared_give(int device, size_t bytes)
{
    if (all)
        mine->used[device] -= bytes;
}

bool fake_shared_asks(const char *failure)
{
    return fake_setup.shared && !access(in_folder(failure).c_str(), F_OK);
}
