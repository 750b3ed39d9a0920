/** Loaded into a child process by `--import`: throws outside of all guards when the process gets SIGUSR2, and each 5 ms from then on. */

process.on('SIGUSR2', () => {
  void Promise.reject(new Error('secret-in-a-rejection'));
  setInterval(() => {
    throw Object.assign(new TypeError('secret-in-an-exception'), { code: 'ERR_TEST' });
  }, 5);
});
