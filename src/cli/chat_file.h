/* Conversations as files: JSON that pn_chat_read understands, with a mark that says it is ours. */
#ifndef PN_CLI_CHAT_FILE_H
#define PN_CLI_CHAT_FILE_H

#include "chat/chat.h"

/* Writes the conversation (its texts; it has no tools) to a file that appears whole; thinks: the
 * next answer may think.
 * Errors: PN_ERR_ARG when there is something at path that is no such file, PN_ERR_IO, PN_ERR_NOMEM;
 * what was there before stays. */
pn_status pn_chat_file_save(const char *path, const pn_chat *chat, bool thinks, pn_err *err);

/* Reads a file into the empty chat: messages of system, user and assistant without tool calls.
 * Errors: PN_ERR_IO, PN_ERR_FORMAT, PN_ERR_LIMIT, PN_ERR_NOMEM; chat is then empty. */
pn_status pn_chat_file_load(const char *path, pn_chat *chat, bool *thinks, pn_err *err);

#endif
