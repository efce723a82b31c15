/* TLS by OpenSSL: 1.2 and up, HTTP/1.1 alone. */

#include "server/http_internal.h"

#include "base/mem.h"
#include "base/status.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

struct pn_tls {
    SSL_CTX *ctx;
};

/* Fails with OpenSSL's oldest reason, then forgets all of them. */
static pn_status fail(pn_err *err, const char *what)
{
    const unsigned long code = ERR_get_error();
    const char *const reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return pn_fail(err, PN_ERR_IO, "%s: %s", what, reason ? reason : "OpenSSL refuses it");
}

/* Of what a client speaks (ALPN) http/1.1 is chosen; if that is not there, nothing is said. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl, (void)arg;
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_NOACK;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* A key with a passphrase is refused, not asked for on a terminal. */
static int no_passphrase(char *buf, int size, int is_writing, void *arg)
{
    (void)buf, (void)size, (void)is_writing, (void)arg;
    return -1;
}

pn_status pn_tls_new(const char *cert_file, const char *key_file, pn_tls **out, pn_err *err)
{
    pn_tls *const tls = pn_calloc(1, sizeof *tls);
    if (!tls)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for TLS");
    pn_status status = PN_OK;
    tls->ctx = SSL_CTX_new(TLS_server_method());
    if (!tls->ctx) {
        status = fail(err, "TLS");
        goto done;
    }
    SSL_CTX_set_min_proto_version(tls->ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(tls->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(tls->ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(tls->ctx, choose_protocol, NULL);
    SSL_CTX_set_default_passwd_cb(tls->ctx, no_passphrase);
    if (SSL_CTX_use_certificate_chain_file(tls->ctx, cert_file) != 1)
        status = fail(err, cert_file);
    else if (SSL_CTX_use_PrivateKey_file(tls->ctx, key_file, SSL_FILETYPE_PEM) != 1)
        status = fail(err, key_file);
    if (status != PN_OK)
        goto done;
    *out = tls;
    return PN_OK;
done:
    pn_tls_free(tls);
    return status;
}

void pn_tls_free(pn_tls *tls)
{
    if (!tls)
        return;
    SSL_CTX_free(tls->ctx);
    pn_free(tls);
}

struct bufferevent *pn_tls_accept(pn_tls *tls, struct event_base *base)
{
    SSL *const ssl = SSL_new(tls->ctx);
    if (!ssl)
        return NULL;
    struct bufferevent *const bev = bufferevent_openssl_socket_new(
        base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) {
        SSL_free(ssl);
        return NULL;
    }
    /* Clients close without a word; a body's length says whether it is whole. */
    bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    return bev;
}
