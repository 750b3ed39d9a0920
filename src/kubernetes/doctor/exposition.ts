/** Finds the config's hash in a running sidecar's metrics. The text is untrusted: the owner of the pod can serve anything. */

const NAME = 'sidegate_config_info{';
const MAX_LINE_LENGTH = 1024;
const CONFIG_INFO = /^[^}\n]*\bhash="([0-9a-f]{1,64})"[^}\n]*\} 1(?:\.0+)?$/;

/** Undefined if no line contains it. Takes linear time. */
export function readConfigHash(text: string): string | undefined {
  for (let start = 0; start < text.length; ) {
    const found = text.indexOf('\n', start);
    const end = found === -1 ? text.length : found;
    if (end - start <= MAX_LINE_LENGTH && text.startsWith(NAME, start)) {
      const [, hash] = CONFIG_INFO.exec(text.slice(start + NAME.length, end)) ?? [];
      if (hash !== undefined) return hash;
    }
    start = end + 1;
  }
  return undefined;
}
