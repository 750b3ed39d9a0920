/** kube-proxy's part for one Service: listens on its ClusterIP and leads connections to the endpoints that its EndpointSlices name. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Cluster } from './cluster.ts';
import type { Kube } from './kube-request.ts';
import { toReachable } from './pod-addresses.ts';

/** A Service that can be reached. */
export interface ServiceProxy {
  readonly clusterIp: string;
  /** Endpoints of a port that connections go to now, as address:port. */
  endpoints(portName?: string): readonly string[];
  stop(): Promise<void>;
}

interface Endpoint {
  readonly portName: string;
  readonly address: string;
  readonly port: number;
}

const LOOK_MS = 25;

/** `delayMs` is how late the proxy learns of changes, as real ones do. */
export async function startServiceProxy(cluster: Cluster, namespace: string, name: string, delayMs = 0): Promise<ServiceProxy> {
  const { spec } = await cluster.ok('GET', `/api/v1/namespaces/${namespace}/services/${name}`);
  const clusterIp: string = spec.clusterIP;
  let endpoints: readonly Endpoint[] = await readEndpoints(cluster, namespace, name);
  let isStopped = false;
  let turn = 0;
  const sockets = new Set<Socket>();
  const find = (portName = ''): readonly Endpoint[] => endpoints.filter((each) => each.portName === portName);

  function lead(socket: Socket, portName: string): void {
    const ready = find(portName);
    const endpoint = ready[turn++ % Math.max(1, ready.length)];
    if (endpoint === undefined) {
      // What kube-proxy does for a Service without endpoints.
      socket.resetAndDestroy();
      return;
    }
    const onward = connect({ host: endpoint.address, port: endpoint.port, allowHalfOpen: true });
    for (const [one, other] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      sockets.add(one);
      one.setNoDelay(true);
      one.pipe(other);
      one.once('error', () => other.resetAndDestroy());
      one.once('close', () => {
        sockets.delete(one);
        if (!other.writableEnded) other.end();
      });
    }
  }
  const loop = (async () => {
    while (!isStopped) {
      const fresh = await readEndpoints(cluster, namespace, name);
      setTimeout(() => {
        endpoints = fresh;
      }, delayMs);
      await new Promise((done) => setTimeout(done, LOOK_MS));
    }
  })();
  const servers = await Promise.all(
    (spec.ports as Kube[]).map(({ name: portName = '', port }) => listen(clusterIp, port, (socket) => lead(socket, portName))),
  );
  return {
    clusterIp,
    endpoints: (portName) => find(portName).map(({ address, port }) => `${address}:${port}`),
    stop: async () => {
      isStopped = true;
      await loop;
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
    },
  };
}

async function listen(host: string, port: number, take: (socket: Socket) => void): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, take);
  await new Promise<void>((done, fail) => {
    server.once('error', fail);
    server.listen(port, host, done);
  });
  return server;
}

async function readEndpoints(cluster: Cluster, namespace: string, service: string): Promise<Endpoint[]> {
  const slices = await readSlices(cluster, namespace, service);
  return slices.flatMap(({ endpoints, ports }) =>
    ((endpoints ?? []) as Kube[])
      .filter(({ conditions }) => conditions.ready === true)
      .flatMap(({ addresses }) =>
        ((ports ?? []) as Kube[]).map(({ name = '', port }) => ({ portName: name, address: toReachable(addresses[0]), port })),
      ),
  );
}

/** The EndpointSlices of a Service. */
export async function readSlices(cluster: Cluster, namespace: string, service: string): Promise<Kube[]> {
  const selector = encodeURIComponent(`kubernetes.io/service-name=${service}`);
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?labelSelector=${selector}`;
  return (await cluster.ok('GET', path)).items as Kube[];
}
