package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

type noiseFn func(r *rand.Rand) float64

func normal(r *rand.Rand) float64 { return r.NormFloat64() }
func t3(r *rand.Rand) float64 {
	c := 0.0
	for range 3 {
		x := r.NormFloat64()
		c += x * x
	}
	return r.NormFloat64() / math.Sqrt(c/3) / 1.73
}
func expo(r *rand.Rand) float64 { return r.ExpFloat64() }
func contam(r *rand.Rand) float64 {
	x := r.NormFloat64()
	if r.Float64() < 0.05 {
		x += 20
	}
	return x
}
func twopoint(r *rand.Rand) float64 { return float64(r.IntN(2)) }
func quant(r *rand.Rand) float64 { return math.Round(r.NormFloat64()) }

func TestExplore(t *testing.T) {
	reps := 2000
	sds := map[string]func(i, k int) float64{
		"equal": func(i, k int) float64 { return .03 },
		"1..k":  func(i, k int) float64 { return .01 * float64(i+1) },
		"one10x": func(i, k int) float64 { if i == 0 { return .3 }; return .03 },
		"third5x": func(i, k int) float64 { if i%3 == 0 { return .15 }; return .03 },
		"half2x": func(i, k int) float64 { if i%2 == 0 { return .06 }; return .03 },
		"twocalm": func(i, k int) float64 { if i <2 { return .003 }; return .03 },
		"half10x": func(i, k int) float64 { if i%2 == 0 { return .3 }; return .03 },
	}
	noises := map[string]noiseFn{"normal": normal, "t3": t3, "exp": expo, "contam": contam, "quant": quant}

	for _, k := range []int{3, 4, 5, 6, 10} {
		for _, n := range []int{3, 4, 5, 8} {
			for sn, sd := range sds {
				for nn, f := range noises {
					if sn != "equal" && (nn == "exp" || nn=="contam") { continue }
					for _, partial := range []bool{false, true} {
					r := rand.New(rand.NewPCG(1, 2))
					hit1, hit := 0, 0
					var buf []contrast
					for rep := range reps {
						y := make([][]float64, n)
						for b := range y {
							y[b] = make([]float64, k)
							for i := range y[b] {
								y[b][i] = sd(i, k) * f(r)
								if partial && i < k/3 { y[b][i] -= 3*sd(i, k) + .1 }
							}
						}
						buf = contrasts(y, buf)
						asked := make([]bool, len(buf))
						any := false
						for i, c := range buf { 
						if partial && (c.a < k/3) != (c.b < k/3) {continue}
						asked[i] = studentTails(c.t, c.df) * float64(len(buf)) <= .05; any = any || asked[i] }
						if any { 
							hit1++
							for _, p := range byRelabelling(y, buf, asked, 199, uint64(rep)) { if p <= .05 { hit++; break } }
						}
					}
					flag := ""
					if float64(hit)/float64(reps) > .06 { flag = "  <<<" }
					fmt.Printf("k %2d n %2d %-8s %-7s %v fwer student %.3f both %.3f%s\n", k, n, sn, nn, partial, float64(hit1)/float64(reps), float64(hit)/float64(reps), flag)
				}
				}
			}
		}
	}
	for _, n := range []int{3, 4, 5, 6, 8, 10} {
		r := rand.New(rand.NewPCG(1, 2))
		one, all, o2, a2 := 0, 0,0,0
		for rep := range 300 {
			y := make([][]float64, n)
			for b := range y {
				y[b] = make([]float64, 10)
				for i := range y[b] { y[b][i] = .03 * r.NormFloat64() }
				y[b][0] -= math.Log(1.1)
			}
			l := contrasts(y, nil)
			asked := make([]bool, len(l))
			for i, c := range l { asked[i] = studentTails(c.t, c.df)*45 <= .05 }
			p := byRelabelling(y, l, asked, 199, uint64(rep))
			c, d := 0, 0
			for i := range 9 { if asked[i] { c++ }; if p[i] <= .05 { d++ } }
			if c>4 { one++ }
			if c == 9 { all++ }
			if d>4 { o2++ }
			if d == 9 { a2++ }
		}
		fmt.Println("power n", n, "student: >4 pairs", one, "all nine", all, "both: >4 pairs", o2, "all nine", a2, "of 300")
	}
}
