#include "cuda/card.h"

extern "C" {
#include "cuda/graph.h"
}

#include <algorithm>
#include <stdio.h>
#include <stdlib.h>

static fc_driver *driver;
static fc_device *device;
static fc_stream *stream;

static void open_card(void)
{
    const char *const number = getenv("DEVICE");
    fc_device_options opts = {};
    opts.spin = true;
    pn_err err = {};
    pn_status st = fc_driver_open(&driver, nullptr, nullptr, &err);
    if (st == PN_OK)
        st = fc_device_open(&device, driver, number ? atoi(number) : 0, &opts, &err);
    if (st == PN_OK)
        st = fc_stream_new(&stream, device, &err);
    if (st != PN_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(3);
    }
}

fc_device *card_device(void)
{
    if (!device)
        open_card();
    return device;
}

fc_stream *card_stream(void)
{
    card_device();
    return stream;
}

void card_check(pn_status st, const pn_err &err)
{
    if (st == PN_OK)
        return;
    fprintf(stderr, "%s\n", err.msg);
    exit(1);
}

void card_close(void)
{
    fc_stream_free(stream);
    fc_device_close(device);
    fc_driver_close(driver);
}

bool card_is_small(void)
{
    return getenv("SMALL") != nullptr;
}

/* --- launches and their time ------------------------------------------------------------------ */

static pn_status queue(const card_launch &l, pn_err *err)
{
    return fc_launch(card_stream(), l.kernel, l.grid, l.block, l.smem, l.args.data(), err);
}

void card_run(const card_launch &l)
{
    pn_err err = {};
    card_check(queue(l, &err), err);
    card_check(fc_stream_sync(stream, &err), err);
}

/* The launches as one recording where the driver records. */
class batch
{
  public:
    explicit batch(const std::vector<card_launch> &all) : all_(all)
    {
        pn_err err = {};
        for (const card_launch &l : all) /* found, and its limits set, before it is recorded */
            card_run(l);
        if (!fc_device_get_info(card_device())->can_graph || fc_graph_begin(stream, &err) != PN_OK)
            return;
        for (const card_launch &l : all)
            card_check(queue(l, &err), err);
        card_check(fc_graph_end(stream, &graph_, &err), err);
    }
    ~batch()
    {
        fc_graph_free(graph_);
    }
    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;
    void queue_all(void) const
    {
        pn_err err = {};
        if (graph_)
            card_check(fc_graph_launch(graph_, stream, &err), err);
        else
            for (const card_launch &l : all_)
                card_check(queue(l, &err), err);
    }

  private:
    const std::vector<card_launch> &all_;
    fc_graph *graph_ = nullptr;
};

/* Seconds of n times the batch. */
static double time_batch(const batch &b, int n, fc_event *const e[2])
{
    pn_err err = {};
    float ms = 0;
    card_check(fc_event_record(e[0], stream, &err), err);
    for (int i = 0; i < n; i++)
        b.queue_all();
    card_check(fc_event_record(e[1], stream, &err), err);
    card_check(fc_stream_sync(stream, &err), err);
    card_check(fc_event_ms(e[0], e[1], &ms, &err), err);
    return (double)ms * 1e-3;
}

double card_seconds(const std::vector<card_launch> &all)
{
    enum {
        ROUNDS = 5,
        N_MAX = 1000
    };
    const double round_s = 0.01; /* long against what an event costs */
    fc_event *e[2] = {};
    pn_err err = {};
    for (fc_event *&event : e)
        card_check(fc_event_new(&event, card_device(), true, &err), err);
    std::vector<double> times;
    {
        const batch b(all);
        const double once = time_batch(b, 1, e);
        const int n = card_is_small() ? 1 : (int)std::min<double>(N_MAX, 1 + round_s / once);
        for (int i = 0; i < (card_is_small() ? 1 : ROUNDS); i++)
            times.push_back(time_batch(b, n, e) / n);
    }
    for (fc_event *event : e)
        fc_event_free(event);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] / (double)all.size();
}
