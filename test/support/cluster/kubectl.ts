/** The real kubectl for commands that look for it in PATH. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { findTool, toBound } from './program.ts';

/** Puts it into the folder, bound to the process that starts it; returns an environment that finds it there. */
export function provideKubectl(folder: string): NodeJS.ProcessEnv {
  const [file, args] = toBound(findTool('kubectl-v1.37.1'), []);
  writeFileSync(join(folder, 'kubectl'), `#!/bin/sh\nexec ${[file, ...args].join(' ')} "$@"\n`, { mode: 0o755 });
  const { KUBECONFIG: _, ...rest } = process.env;
  return { ...rest, PATH: `${folder}:${rest['PATH']}` };
}
