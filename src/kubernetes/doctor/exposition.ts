/** Finds the config's hash and the version in a running sidecar's metrics. The text is untrusted: the owner of the pod can serve anything. */

const MAX_LINE_LENGTH = 1024;
const CONFIG_INFO = /^[^}\n]*\bhash="([0-9a-f]{1,64})"[^}\n]*\} 1(?:\.0+)?$/;
const BUILD_INFO = /^[^}\n]*\bversion="([0-9a-z.+-]{1,64})"[^}\n]*\} 1(?:\.0+)?$/i;

/** The hash of the config in use. */
export function readConfigHash(text: string): string | undefined {
  return readLabel(text, 'sidegate_config_info{', CONFIG_INFO);
}

/** The version of the running program. */
export function readBuildVersion(text: string): string | undefined {
  return readLabel(text, 'sidegate_build_info{', BUILD_INFO);
}

/** Undefined if no line contains it. Takes linear time. */
function readLabel(text: string, name: string, info: RegExp): string | undefined {
  for (let start = 0; start < text.length; ) {
    const found = text.indexOf('\n', start);
    const end = found === -1 ? text.length : found;
    if (end - start <= MAX_LINE_LENGTH && text.startsWith(name, start)) {
      const [, label] = info.exec(text.slice(start + name.length, end)) ?? [];
      if (label !== undefined) return label;
    }
    start = end + 1;
  }
  return undefined;
}
