/** What the kubelet asks of containers: probes and lifecycle hooks, from outside of the pod. */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { connect } from 'node:net';
import type { Kube } from './kube-request.ts';

/** The container that is asked. */
export interface Asked {
  /** Where the pod is reached on this machine. */
  readonly address: string;
  /** As in the pod: port names are looked up here. */
  readonly container: Kube;
  /** Runs a command as the container would; gives its exit code. */
  readonly execute: (command: readonly string[]) => Promise<number>;
}

const SHORTEST_MS = 1_000;

/** Whether one try of a probe, or of a hook, succeeds. */
export async function succeeds(action: Kube, asked: Asked): Promise<boolean> {
  const timeoutMs = Math.max(SHORTEST_MS, (action.timeoutSeconds ?? 1) * 1_000);
  if (action.httpGet !== undefined) return getHttp(action.httpGet, asked, timeoutMs);
  if (action.tcpSocket !== undefined) return openTcp(toPort(action.tcpSocket.port, asked.container), asked.address, timeoutMs);
  if (action.exec !== undefined) return (await asked.execute(action.exec.command)) === 0;
  throw new Error(`no probe is made of ${Object.keys(action).join(', ')} here`);
}

function toPort(port: number | string, container: Kube): number {
  if (typeof port === 'number') return port;
  const found = (container.ports as Kube[] | undefined)?.find(({ name }) => name === port);
  if (found === undefined) throw new Error(`container ${container.name} has no port named ${port}`);
  return found.containerPort;
}

function getHttp(get: Kube, { address, container }: Asked, timeout: number): Promise<boolean> {
  const isTls = String(get.scheme).toUpperCase() === 'HTTPS';
  const port = toPort(get.port, container);
  const named = ((get.httpHeaders ?? []) as { name: string; value: string }[]).map(({ name, value }) => [name, value]);
  const headers = {
    Host: `${address}:${port}`,
    'User-Agent': 'kube-probe/1.36',
    Connection: 'close',
    ...Object.fromEntries(named),
  };
  const send = isTls ? httpsRequest : httpRequest;
  return new Promise((done) => {
    // Scheme and certificates of an app are its own affair: the kubelet checks none either.
    const request = send({
      host: address,
      port,
      path: get.path ?? '/',
      headers,
      timeout,
      rejectUnauthorized: false,
      agent: false,
    });
    request.once('response', ({ statusCode = 0 }) => {
      done(statusCode >= 200 && statusCode < 400);
      request.destroy();
    });
    request.once('timeout', () => request.destroy());
    request.once('error', () => done(false));
    request.once('close', () => done(false));
    request.end();
  });
}

function openTcp(port: number, address: string, timeout: number): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect({ port, host: address, timeout });
    const end = (isOpen: boolean) => (): void => {
      socket.destroy();
      done(isOpen);
    };
    socket.once('connect', end(true)).once('timeout', end(false)).once('error', end(false));
  });
}
