/* Streams of the stand-in: queues whose operations run, in a random order that events allow, when
 * somebody waits. */
#include "cuda/fake.h"

#include <algorithm>
#include <random>

static std::vector<fake_stream *> streams;
static int n_made;
static std::mt19937 rng;

fake_stream *fake_of(CUstream s)
{
    if (!s)
        fake_die("the null stream is used");
    return (fake_stream *)s;
}

void fake_streams_begin(void)
{
    streams.clear();
    n_made = 0;
    rng.seed(fake_setup.seed);
}

void fake_stream_add(fake_stream *s)
{
    s->number = ++n_made;
    streams.push_back(s);
}

void fake_stream_remove(fake_stream *s)
{
    streams.erase(std::find(streams.begin(), streams.end(), s));
}

void fake_push(fake_stream *s, fake_op op)
{
    s->ends_with_launch = op.is_launch;
    if (s->recording)
        s->recorded.push_back(std::move(op));
    else
        s->queue.push_back(std::move(op));
}

static bool is_late(const fake_stream *s)
{
    const int n = fake_setup.starved;
    return n > 0 ? s->number == n : n < 0 && s->number != -n;
}

/* Runs the next operation of a stream that may go on; false when there is none. */
static bool run_one(void)
{
    std::vector<fake_stream *> able, late;
    for (fake_stream *s : streams)
        if (!s->queue.empty() &&
            (!s->queue.front().ready || s->queue.front().ready() || fake_is_lost(s->device)))
            (is_late(s) ? late : able).push_back(s);
    std::vector<fake_stream *> &some = able.empty() ? late : able;
    if (some.empty())
        return false;
    fake_stream *const s = some[rng() % some.size()];
    const fake_op op = std::move(s->queue.front());
    s->queue.pop_front();
    fake_trace("device %d, stream %p: %s", s->device, (void *)s, op.name);
    if (!fake_is_lost(s->device) || op.is_event)
        op.run();
    fake_state.n_op++;
    return true;
}

void fake_run_until(const std::function<bool(void)> &stop)
{
    while (!stop())
        if (!run_one())
            fake_die("streams wait for each other, or for an event that nobody records");
    fake_memory_open(-1, -1);
}

bool fake_device_is_idle(int device)
{
    for (const fake_stream *s : streams)
        if (s->device == device && !s->queue.empty())
            return false;
    return true;
}

bool fake_is_pending(const void *p, size_t bytes)
{
    const char *const a = (const char *)p;
    for (const fake_stream *s : streams)
        for (const fake_op &op : s->queue) {
            const char *const b = (const char *)op.host;
            if (b && !fake_is_lost(s->device) && b < a + bytes && a < b + op.host_bytes)
                return true;
        }
    return false;
}
