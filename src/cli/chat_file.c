#include "cli/chat_file.h"

#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every file begins with this. */
#define MARK    "pantheon_chat"
#define BEGIN   "{\"" MARK "\": "
#define VERSION 1

/* --- saving ----------------------------------------------------------------------------------- */

static void put_msg(pn_jw *w, const pn_chat *c, const pn_chat_msg *m)
{
    static const char *const roles[] = {
        [PN_CHAT_SYSTEM] = "system", [PN_CHAT_USER] = "user", [PN_CHAT_ASSISTANT] = "assistant"
    };
    pn_buf clean = { 0 };
    pn_jw_begin_obj(w, NULL);
    pn_jw_str(w, "role", roles[m->role]);
    pn_utf8_clean((pn_span){ c->pool.ptr + m->content.off, m->content.len }, &clean);
    pn_jw_span(w, "content", pn_buf_span(&clean));
    clean.len = 0;
    if (m->has_reasoning) {
        pn_utf8_clean((pn_span){ c->pool.ptr + m->reasoning.off, m->reasoning.len }, &clean);
        pn_jw_span(w, "reasoning_content", pn_buf_span(&clean));
    }
    pn_jw_end_obj(w);
    w->buf->failed |= clean.failed;
    pn_buf_free(&clean);
}

/* Only a file of ours is replaced. */
static pn_status check_target(const char *path, pn_err *err)
{
    char head[sizeof BEGIN - 1];
    struct stat st;
    if (lstat(path, &st) != 0)
        return PN_OK; /* nothing is there, or opening will say what is wrong */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool is_ours = fd >= 0 && pn_fd_read(fd, path, head, sizeof head, 0, NULL) == PN_OK &&
                         memcmp(head, BEGIN, sizeof head) == 0;
    if (fd >= 0)
        close(fd);
    return is_ours ? PN_OK
                   : pn_fail(err, PN_ERR_ARG, "%s is there and is no saved chat: it is left alone",
                             path);
}

static pn_status write_whole(const char *path, pn_span text, pn_err *err)
{
    pn_buf tmp = { 0 };
    pn_buf_addf(&tmp, "%s.XXXXXX", path);
    if (!pn_buf_cstr(&tmp))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
    const int fd = mkostemp(tmp.ptr, O_CLOEXEC);
    pn_status st = fd < 0 ? pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno))
                          : pn_fd_write(fd, path, text.ptr, text.len, 0, err);
    if (st == PN_OK && (fsync(fd) != 0 || rename(tmp.ptr, path) != 0))
        st = pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
    if (fd >= 0 && st != PN_OK)
        unlink(tmp.ptr);
    if (fd >= 0)
        close(fd);
    pn_buf_free(&tmp);
    return st;
}

pn_status pn_chat_file_save(const char *path, const pn_chat *chat, bool thinks, pn_err *err)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_int(&w, MARK, VERSION);
    pn_jw_bool(&w, "enable_thinking", thinks);
    pn_jw_begin_arr(&w, "messages");
    for (size_t i = 0; i < chat->n_msg; i++)
        put_msg(&w, chat, &chat->msgs[i]);
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
    pn_buf_addc(&text, '\n');
    pn_status st = pn_buf_ok(&text) ? check_target(path, err)
                                    : pn_fail(err, PN_ERR_NOMEM, "no memory for the chat's text");
    if (st == PN_OK)
        st = write_whole(path, pn_buf_span(&text), err);
    pn_buf_free(&text);
    return st;
}

/* --- loading ---------------------------------------------------------------------------------- */

/* Takes the messages of a request over, as texts. */
static pn_status take_messages(const pn_chat *from, pn_chat *chat, pn_err *err)
{
    for (size_t i = 0; i < from->n_msg; i++) {
        const pn_chat_msg *const m = &from->msgs[i];
        if (m->role > PN_CHAT_ASSISTANT || m->n_call || from->tools)
            return pn_fail(err, PN_ERR_FORMAT,
                           "has tools, which a chat in the terminal cannot use");
        const pn_span thought = { from->pool.ptr + m->reasoning.off, m->reasoning.len };
        const pn_span content = { from->pool.ptr + m->content.off, m->content.len };
        PN_TRY(pn_chat_add(chat, m->role, content, m->has_reasoning ? &thought : NULL, err));
    }
    return PN_OK;
}

static pn_status read_all(const pn_json *json, pn_chat *chat, bool *thinks, pn_err *err)
{
    const pn_jat root = pn_jat_root(json), mark = pn_jat_get(&root, MARK);
    int64_t version;
    PN_TRY(pn_jat_want(&root, PN_JSON_OBJ, err));
    if (!pn_jat_is_set(&mark))
        return pn_fail(err, PN_ERR_FORMAT, "not a saved chat");
    PN_TRY(pn_jat_int(&mark, VERSION, VERSION, &version, err));
    pn_chat request = { 0 };
    pn_status st = pn_chat_read(&request, json, err);
    if (st == PN_OK)
        st = take_messages(&request, chat, err);
    if (st == PN_OK)
        *thinks = request.enable_thinking != PN_CHAT_FALSE;
    pn_chat_clear(&request);
    return st;
}

pn_status pn_chat_file_load(const char *path, pn_chat *chat, bool *thinks, pn_err *err)
{
    pn_map map;
    pn_json *json = NULL;
    PN_TRY(pn_map_open(path, true, &map, err));
    pn_status st = pn_json_parse((const char *)map.data, map.size, path, &json, err);
    pn_map_close(&map);
    if (st == PN_OK && (st = read_all(json, chat, thinks, err)) != PN_OK)
        pn_err_prefix(err, "%s: ", path);
    if (st != PN_OK)
        pn_chat_clear(chat);
    pn_json_free(json);
    return st;
}
