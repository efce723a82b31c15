/* A GPU as a backend: the kernels' tests run on it as they do on the CPU. Each array of a test has
 * an image in the card's memory; for a launch all are sent there, addresses in the arguments and in
 * tables become those of the images, and what the kernel made is fetched. */
#include "cuda/backend.h"

#include "cuda/card.h"

#include <map>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace
{
struct memory {
    size_t bytes;
    bool holds_addresses;
};

/* All arrays in the card's memory, once. */
class image
{
  public:
    explicit image(const std::map<uintptr_t, memory> &host) : host_(host)
    {
        pn_err err = {};
        for (const auto &m : host) {
            void *p = nullptr;
            card_check(fc_alloc(card_device(), m.second.bytes, "an array", &p, &err), err);
            at_[m.first] = p;
        }
        for (const auto &m : host) {
            std::vector<unsigned char> bytes((const unsigned char *)m.first,
                                             (const unsigned char *)m.first + m.second.bytes);
            if (m.second.holds_addresses)
                translate(bytes);
            card_check(fc_copy_in(card_stream(), at_[m.first], bytes.data(), bytes.size(), &err),
                       err);
        }
        card_check(fc_stream_sync(card_stream(), &err), err);
    }
    ~image()
    {
        for (const auto &p : at_)
            fc_free(card_device(), p.second);
    }
    image(const image &) = delete;
    image &operator=(const image &) = delete;

    /* Addresses of arrays, or of what is in them, become the image's. */
    void translate(std::vector<unsigned char> &bytes) const
    {
        for (size_t i = 0; i + sizeof(uintptr_t) <= bytes.size(); i += sizeof(uintptr_t)) {
            uintptr_t p;
            memcpy(&p, &bytes[i], sizeof p);
            auto m = host_.upper_bound(p);
            if (m == host_.begin() || p > (--m)->first + m->second.bytes)
                continue;
            p = (uintptr_t)at_.at(m->first) + (p - m->first);
            memcpy(&bytes[i], &p, sizeof p);
        }
    }
    void fetch(void) const
    {
        pn_err err = {};
        for (const auto &m : host_)
            if (!m.second.holds_addresses)
                card_check(fc_copy_out(card_stream(), (void *)m.first, at_.at(m.first),
                                       m.second.bytes, &err),
                           err);
        card_check(fc_stream_sync(card_stream(), &err), err);
    }

  private:
    const std::map<uintptr_t, memory> &host_;
    std::map<uintptr_t, void *> at_;
};

class card : public backend
{
  public:
    ~card()
    {
        card_close();
    }
    const char *name() const override
    {
        return fc_device_get_info(card_device())->name;
    }
    int arch() const override
    {
        return 10 * fc_device_get_info(card_device())->sm_code;
    }
    std::vector<std::string> kernels() const override
    {
        return {};
    }
    size_t args_bytes(const char *kernel) const override
    {
        return fc_has_kernel(card_device(), kernel) ? SIZE_MAX : 0;
    }
    bool launch(const char *kernel, const void *args, size_t args_bytes, const unsigned grid[3],
                const unsigned block[3], size_t smem) override
    {
        const image i(host_);
        const card_launch l = launch_on(i, kernel, args, args_bytes, grid, block, smem);
        pn_err err = {};
        if (fc_launch(card_stream(), kernel, grid, block, smem, l.args.data(), &err) == PN_OK &&
            fc_stream_sync(card_stream(), &err) == PN_OK) {
            i.fetch();
            return true;
        }
        fprintf(stderr, "%s\n", err.msg);
        if (fc_device_is_lost(card_device(), nullptr))
            exit(1); /* whatever comes would fail, too */
        return false;
    }
    /* On as many images in turn that none is in the cache any more when it comes again. */
    double seconds(const char *kernel, const void *args, size_t args_bytes, const unsigned grid[3],
                   const unsigned block[3], size_t smem) override
    {
        enum {
            N_IMAGE_MAX = 64
        };
        size_t bytes = 1;
        for (const auto &m : host_)
            bytes += m.second.bytes;
        const size_t want = 3 * fc_device_get_info(card_device())->l2_bytes / bytes + 1;
        const size_t n = card_is_small() ? 2 : want < N_IMAGE_MAX ? want : (size_t)N_IMAGE_MAX;
        std::vector<std::unique_ptr<image>> images;
        std::vector<card_launch> all;
        for (size_t i = 0; i < n; i++) {
            images.emplace_back(new image(host_));
            all.push_back(launch_on(*images[i], kernel, args, args_bytes, grid, block, smem));
        }
        return card_seconds(all);
    }
    std::string where() const override
    {
        return "the host";
    }
    void add_memory(void *p, size_t bytes, bool holds_addresses) override
    {
        host_[(uintptr_t)p] = { bytes, holds_addresses };
    }
    void drop_memory(const void *p) override
    {
        host_.erase((uintptr_t)p);
    }

  private:
    static card_launch launch_on(const image &i, const char *kernel, const void *args,
                                 size_t args_bytes, const unsigned grid[3], const unsigned block[3],
                                 size_t smem)
    {
        card_launch l = { kernel,
                          { grid[0], grid[1], grid[2] },
                          { block[0], block[1], block[2] },
                          smem,
                          { (const unsigned char *)args,
                            (const unsigned char *)args + args_bytes } };
        i.translate(l.args);
        return l;
    }
    std::map<uintptr_t, memory> host_; /* by address */
};
} // namespace

std::vector<std::unique_ptr<backend>> all_backends(void)
{
    card_device(); /* its reason, before anything else is said */
    std::vector<std::unique_ptr<backend>> all;
    all.emplace_back(new card);
    return all;
}

/* The fastest: a card is asked at the model's real shapes, too, and all levels have equal bits. */
pn_isa cpu_level(void)
{
    return pn_isa_best();
}
