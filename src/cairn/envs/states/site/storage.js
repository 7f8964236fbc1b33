// What the browser keeps for the page: storage, cookies, history, files.
for (const [kind, storage] of [['local-storage', localStorage], ['session-storage', sessionStorage]]) {
  properties[kind] = {
    goal: `store a word, then check`,
    set: () => storage.setItem('word', word),
    check: () => differs('the stored word', storage.getItem('word'), word),
  };
}
{
  const finished = (request) => new Promise((done, failed) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => failed(request.error);
  });
  const opened = () => {
    const request = indexedDB.open('states', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('words');
    return finished(request);
  };
  properties.indexeddb = {
    goal: 'store a word in a database, then check',
    set: async () => {
      const database = await opened();
      await finished(database.transaction('words', 'readwrite').objectStore('words').put(word, number));
      database.close();
    },
    check: async () => {
      const database = await opened();
      return differs('the stored word', await finished(database.transaction('words').objectStore('words').get(number)), word);
    },
  };
}
properties.cookies = {
  goal: 'set two cookies, then check',
  set: () => {
    document.cookie = `brief=${word}`;
    document.cookie = `lasting=${number}; max-age=3600`;
  },
  check: () => differs('the cookies', document.cookie.split('; ').sort().join(' '), `brief=${word} lasting=${number}`),
};
properties.history = {
  goal: 'go to another place, then check that back works',
  set: () => {
    history.pushState({ at: number }, '', '#first');
    history.pushState({ at: number + 1 }, '', '#second');
  },
  check: async () => {
    if (history.state?.at !== number + 1) return differs('the place', location.hash, '#second');
    let came = false;
    addEventListener('popstate', () => { came = true; });
    history.back();
    if (!(await until(() => came, 5000))) return 'going back leads nowhere';
    return differs('the place before', `${location.hash} ${history.state?.at}`, `#first ${number}`);
  },
};
{
  let file = null;
  const kept = async () => {
    const response = await fetch(`files/${file}`, { cache: 'no-store' });
    return response.ok ? response.text() : '';
  };
  properties.download = {
    goal: 'download a file, then check',
    set: async () => {
      file = `${crypto.randomUUID()}.txt`;
      const link = document.createElement('a');
      link.href = URL.createObjectURL(new Blob([word]));
      link.download = file;
      link.click();
      if (!(await until(async () => (await kept()) === word, 8000))) throw new Error('the download did not arrive');
    },
    check: async () => (file === null ? 'nothing was downloaded' : differs('the file', await kept(), word)),
  };
}
