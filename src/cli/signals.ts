/** How a running command learns that it should stop. */

/** The first signal; a second one ends the process at once. */
export function untilSignal(): Promise<string> {
  return new Promise((resolve) => {
    let isStopping = false;
    for (const [signal, number] of [
      ['SIGTERM', 15],
      ['SIGINT', 2],
    ] as const) {
      process.on(signal, () => {
        if (isStopping) process.exit(128 + number);
        isStopping = true;
        resolve(signal);
      });
    }
  });
}
