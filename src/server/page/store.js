/* Conversations in the browser's IndexedDB, one record each; memory alone where there is none.
 * Pages of several windows share them: what another one added is merged, never overwritten. */

const store = {
  db: null,
  channel: 'BroadcastChannel' in window ? new BroadcastChannel('pantheon-chats') : null,

  /* Opens it and returns all conversations. onChange(id) is called when another window changed one. */
  async open(onChange) {
    if (this.channel) this.channel.onmessage = (event) => onChange(String(event.data));
    try {
      this.db = await new Promise((resolve, reject) => {
        const request = indexedDB.open('pantheon', 1);
        request.onupgradeneeded = () => request.result.createObjectStore('chats', { keyPath: 'id' });
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
        request.onblocked = () => reject(new Error('blocked'));
      });
      return await this.run('readonly', (chats) => chats.getAll());
    } catch {
      this.db = null;
      notice('This browser keeps nothing for this page: conversations last until you close it. Export those that you need.');
      return [];
    }
  },

  /* The result of one request; the transaction is over then. */
  run(mode, fn) {
    return new Promise((resolve, reject) => {
      const transaction = this.db.transaction('chats', mode);
      const request = fn(transaction.objectStore('chats'));
      transaction.oncomplete = () => resolve(request?.result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  },

  get(id) {
    return this.db ? this.run('readonly', (chats) => chats.get(id)) : Promise.resolve(undefined);
  },

  /* Writes chat, and takes over the messages that another window wrote meanwhile. */
  async save(chat) {
    if (!this.db || chat.isGone) return;
    try {
      await this.run('readwrite', (chats) => {
        const read = chats.get(chat.id);
        read.onsuccess = () => {
          if (read.result) mergeChat(chat, read.result);
          chats.put(chat);
        };
        return read;
      });
      this.channel?.postMessage(chat.id);
    } catch (error) {
      notice(error?.name === 'QuotaExceededError'
        ? 'The browser has no room left: the latest messages are not stored. Export or delete conversations.'
        : 'The browser could not store the latest messages. Export this conversation if you need it.');
    }
  },

  /* Soon, and not more often than every half second: for answers that are being written. */
  saveSoon(chat) {
    chat.id in this.waiting || (this.waiting[chat.id] = setTimeout(() => this.flush(chat), 500));
  },
  flush(chat) {
    clearTimeout(this.waiting[chat.id]);
    delete this.waiting[chat.id];
    return this.save(chat);
  },
  waiting: {},

  async remove(chat) {
    chat.isGone = true;
    if (this.db) await this.run('readwrite', (chats) => chats.delete(chat.id));
    this.channel?.postMessage(chat.id);
  },
};
