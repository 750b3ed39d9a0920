/** The rivals in Basic: how each is started on the gate's core, and which of them takes part in what. */
import type { ChildProcess } from 'node:child_process';
import { toNginx } from '../bench-environment.ts';
import { end, findFreePort, GATE_CORE, type Launch, launch, untilListening } from '../children.ts';
import { listFamily } from '../machine.ts';
import { toSidegate } from '../rivals.ts';
import type { BasicEnvironment } from './basic-environment.ts';
import { writeCaddyConfig, writeNginxConfig, writeSidegateConfig } from './configs.ts';
import { findCaddy } from './setup.ts';

/** A process that takes part; `proxied` is a sidegate that believes what a proxy before it says of the client's address. */
export type GateName = 'nginx' | 'caddy' | 'sidegate' | 'proxied';

/** One that serves. */
export interface Gate {
  readonly name: GateName;
  readonly port: number;
  /** Caddy serves the same without an access log there. */
  readonly quietPort: number;
  /** The process and its workers. */
  readonly pids: readonly number[];
  readonly stop: () => Promise<void>;
}

/** In the order of each round. */
export const GATES: readonly GateName[] = ['nginx', 'caddy', 'sidegate', 'proxied'];

/** Starts one and waits until it serves; undefined where it is not on this machine. */
export async function startGate(
  name: GateName,
  environment: BasicEnvironment,
  nodeArgs: readonly string[] = [],
): Promise<Gate | undefined> {
  const ports = { port: await findFreePort(), quietPort: await findFreePort(), adminPort: await findFreePort() };
  const how = toLaunch(name, { environment, ...ports, nodeArgs });
  if (how === undefined) return undefined;
  const child: ChildProcess = launch(how);
  await untilListening(child, ports.port);
  return { name, ...ports, pids: listFamily(child.pid ?? 0), stop: () => end(child) };
}

interface Start {
  readonly environment: BasicEnvironment;
  readonly port: number;
  readonly quietPort: number;
  readonly adminPort: number;
  readonly nodeArgs: readonly string[];
}

function toLaunch(name: GateName, { environment, port, quietPort, adminPort, nodeArgs }: Start): Launch | undefined {
  switch (name) {
    case 'nginx':
      return toNginx(environment.folder, 'nginx', GATE_CORE, writeNginxConfig(environment, port));
    case 'caddy': {
      const command = findCaddy();
      if (command === undefined) return undefined;
      const args = ['run', '--adapter', 'caddyfile', '--config', writeCaddyConfig(environment, port, quietPort)];
      // It keeps what it makes in the home folder.
      const env = { HOME: environment.folder, XDG_DATA_HOME: environment.folder, XDG_CONFIG_HOME: environment.folder };
      return { core: GATE_CORE, command, args, env, log: `${environment.folder}/caddy.log` };
    }
    default:
      return toSidegate(writeSidegateConfig(environment, { name, port, adminPort, isProxied: name === 'proxied' }), { nodeArgs });
  }
}
