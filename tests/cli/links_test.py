"""`trireme run` on three hosts of which two no longer reach each other, while the leader reaches both."""
import unittest

import run_campaign_test as campaign
from run_campaign_test import PATIENCE, HostsTest, run


class Links(HostsTest):
    num_hosts = 3
    options = campaign.OPTIONS + ["--train.global_batch=12", "--train.reproducible=false",
                                  "--parallel.timeout_seconds=4"]

    def cut(self, *hosts):
        """The bridge passes nothing between ports that are isolated."""
        for host in hosts:
            run("bridge", "link", "set", "dev", host.cable, "isolated", "on")

    def output(self, host):
        return (self.folder / f"{host.name}.out").read_text()

    def events_of(self, kind):
        return [event["text"] for event in self.events() if event["event"] == kind]

    def start_all(self):
        for host in self.hosts:
            host.start()
        self.await_step(3, "the start")
        self.await_hosts("the start")

    def test_a_dead_link_between_two_followers_leaves_one_of_them_out(self):
        self.start_all()
        self.cut(*self.hosts[1:])
        before = self.newest_step()
        self.await_step(before + 5, "a link is cut")
        pair = r"h2 does not reach h3 at 10\.231\.81\.3 \(no answer within 2 s\)|h3 does not reach h2 at [0-9.]+ \(no answer"
        self.assertRegex(self.events_of("failure")[-1], f"a dead link: ({pair})")
        self.assertRegex(self.events_of("start")[-1], "2 ranks on h1, h2; a dead link")
        self.assertRegex(self.succeed("doctor", "run"), pair)
        self.hosts[0].agent.terminate()
        for host in self.hosts:
            self.assertEqual(host.agent.wait(timeout=PATIENCE), 0, self.output(host)[-3000:])
        steps = [point[0] for point in self.curve()]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))


class TooFewWithoutIt(Links):
    nodes = "3"

    def test_a_dead_link_between_two_followers_leaves_one_of_them_out(self):
        """No: all three are needed. The job ends and names the two."""
        self.start_all()
        self.cut(*self.hosts[1:])
        for host in self.hosts:
            self.assertEqual(host.agent.wait(timeout=PATIENCE), 3, self.output(host)[-3000:])
            self.assertRegex(self.output(host), r"a dead link: h[23] does not reach h[23] at [^\n]*; without h3 there are "
                                                "fewer than the 3 hosts of --nnodes")


if __name__ == "__main__":
    unittest.main(verbosity=2)
