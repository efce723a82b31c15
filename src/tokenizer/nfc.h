/* Unicode normalization form C of any bytes. Text that needs none, nearly all text, costs one scan
 * (some GB/s over ASCII); the few places that do are composed by utf8proc.
 *
 * Which code points combine is decided by the table's NFC bit, so by the reference tokenizer's
 * Unicode version; what they combine to is fixed by Unicode's stability policy. A newer utf8proc
 * therefore changes nothing. Bytes that are not well-formed UTF-8 stay and separate. */
#ifndef PN_TOKENIZER_NFC_H
#define PN_TOKENIZER_NFC_H

#include "base/buf.h"
#include "base/status.h"

/* *out becomes NFC(text): text itself where nothing changes, else a view of buf, which is emptied
 * first and grows as needed. Errors: PN_ERR_NOMEM.
 * Cost: linear, also for long runs of combining marks (ordered by counting). */
pn_status pn_nfc(pn_span text, pn_buf *buf, pn_span *out, pn_err *err);

#endif
